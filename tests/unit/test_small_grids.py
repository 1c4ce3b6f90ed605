"""Small whole grids: learning rates, neighbourhoods that change during a run, classes."""

from __future__ import annotations

import json
import math

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.coevolution import topology
from paragan.core.types import Side
from tests.unit.test_cell_options import DIGITS, WORDS, evolution, grid


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


CHANGES = "grid.changes=[{at: 1, topology: ring}, {at: 3, edges: [[0, 2]]}]"


def test_neighbourhood_change_is_recorded_at_its_generation(tmp_path):
    run = evolution(
        *(tmp_path, "grid.shape=2x3", "grid.batches=1", CHANGES, "train.kimg=0.04", "scheme=synchronous"),
        "grid.mixture.num_images=40",
    )
    first, lines = run.describe()["grid"]["neighbours"], []
    for event in run.run():
        if event.kind == "generation":
            lines.append(json.loads(json.dumps(event.values)))
    assert [line["generation"] for line in lines] == [1, 2, 3, 4, 5]
    torus, ring, pair = (topology.topology_at(run.population.options, at).neighbours for at in (0, 1, 3))
    assert first == torus != ring != pair
    assert [line.get("neighbours") for line in lines] == [
        *(None, [list(near) for near in ring], None, [list(near) for near in pair], None)
    ]
    sizes = [[len(cell["weights"]) for cell in line["cells"].values()] for line in lines]
    assert [sizes[0], sizes[1], sizes[4]] == [[len(n) for n in torus], [len(n) for n in ring], [2, 1, 2, 1, 1, 1]]
    assert run.describe()["grid"]["neighbours"] == pair


def test_mixture_weights_are_reset_when_neighbours_change(tmp_path):
    """Also where there are as many of them as before."""
    population = grid(
        tmp_path, "grid.shape=1x4", "grid.edges=[[0, 1], [2, 3]]", "grid.changes=[{at: 2, edges: [[0, 2], [1, 3]]}]"
    )
    for generation in range(4):
        population.evolve()
        assert [cell.weights for cell in population.cells] == [(0.75, 0.25) if generation in (1, 3) else (0.5, 0.5)] * 4
        for cell in population.cells:
            cell.weights = (0.75, 0.25)


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
