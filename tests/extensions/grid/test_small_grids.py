"""Small whole grids: learning rates, classes."""

import json
import math
import re
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.core.types import Clock, Side
from paragan.extensions.grid.evolution import Generations
from paragan.extensions.grid.profile import Profile
from tests.extensions.grid.test_cell_options import DIGITS, WORDS, grid


def rates(population, generations):
    found = []
    for _ in range(generations):
        population.evolve()
        found.append([cell.centre[side].traits.lr for cell in population.cells for side in Side])
    return found


@pytest.mark.parametrize(("probability", "are_mutated"), [(0, False), (1, True)])
def test_learning_rates_of_a_grid_mutate_with_the_given_probability(probability, are_mutated, tmp_path):
    words = (f"grid.rates.probability={probability}", "grid.replacement=always")
    first, *_, last = rates(grid(tmp_path, *words), 3)
    assert len(set(first)) == (8 if are_mutated else 1)
    assert (1e-3 not in last) if are_mutated else (set(last) == {1e-3})


@pytest.mark.parametrize(("kimg", "line"), [(0.016, ""), (0.02, "2 whole generations, 0.032 kimg instead of 0.02")])
def test_grid_says_where_its_length_is_no_whole_number_of_generations(kimg, line, tmp_path, capsys):
    words = (*WORDS, "evaluation.features=null", f"train.kimg={kimg}", "--out", str(tmp_path / "run"))
    assert main(["train", "digits", *words]) == 0
    printed = capsys.readouterr().out
    assert line in printed and ("whole generations" in printed) == bool(line)


def test_length_to_go_on_with_is_longer_than_a_grid_has_trained(tmp_path, capsys):
    words = (*WORDS, "evaluation.features=null", "grid.batches=4", "train.kimg=0.008", "--out", str(tmp_path / "run"))
    for _ in range(2):
        assert main(["train", "digits", *words]) == 0
        longer = re.search(r"train\.kimg=([\d.]+)", capsys.readouterr().out)[1]
        assert float(longer) == 0.064  # one generation has 0.032


def test_conditional_grid_samples_by_class(tmp_path):
    out = tmp_path / "run"
    words = (*WORDS, "grid.cells=[{at: [0, 1], classes: [0, 1, 2, 3, 4]}, {at: [2, 3], classes: [5, 6, 7, 8, 9]}]")
    assert main(["train", "digits", *words, "train.kimg=0.032", "--out", str(out)]) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    generations = [line for line in lines if line["kind"] == "generation"]
    assert [line["generation"] for line in generations] == [1, 2]
    assert all(math.isfinite(cell["fitness"]["g"]) for line in generations for cell in line["cells"].values())
    sampler = pg.load(out)
    assert sampler.class_names == tuple("0123456789")
    three, eight = (sampler.sample(6, labels=label, seed=0) for label in (3, "8"))
    assert three.tensor.shape == (6, 1, 8, 8) and (three.labels, eight.labels) == ((3,) * 6, (8,) * 6)
    assert not torch.equal(three.tensor, eight.tensor)
    begun = next(line for line in lines if line["kind"] == "start")
    assert begun["data"]["images"] == len(DIGITS) and begun["grid"]["scored_by"] is None  # all data, not one cell's


def test_mean_over_cells_does_not_depend_on_which_worker_is_first():
    loss_of = {0: 1e8, 1: 1.0, 2: -1e8}  # the sum in float32 depends on the order
    gan, means = SimpleNamespace(clock=Clock()), set()
    for order in permutations(loss_of):
        scalars = {number: {"d/loss": torch.tensor(loss_of[number])} for number in order}
        scheme = Generations(SimpleNamespace(generation=0, evolve=lambda scalars=scalars: (Profile(), scalars)))
        means.add(float(scheme.step(gan, iter(())).scalars["d/loss"]))
    assert len(means) == 1
