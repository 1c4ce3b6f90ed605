"""The profile of a grid and its plan: measured on real generations, written, read, refused, printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pages.plan_schema import schema
from paragan import build
from paragan.build.grid_factory import GridFactory
from paragan.cli.main import main
from paragan.coevolution.topology import torus
from paragan.coevolution.workers.genome_exchange import pack_cells
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.process_environment import num_cores
from paragan.runs import profile_grid, timed_generations
from paragan.runs.forecast_grid import grid_costs
from paragan.runs.profile_grid import grid_fingerprint, measure_grid_profile
from paragan.runs.timed_generations import WorkerPlace
from paragan.scaling.grid_forecast import GridPlan
from paragan.scaling.grid_profile import GenerationWork, read_grid_profile
from tests.simulated_workers import grid_profile, profile
from tests.unit.test_plan_document import assert_valid

GRID = [
    "grid.shape=2x2",
    "grid.batches=2",
    "grid.fitness.num_images=4",
    "grid.executor=loop",
    "evaluation.features=null",
]
WORDS = [*GRID, "data.size=8", "model.width=4", "model.latent=8", "train.batch=4", "train.threads=1"]


@pytest.fixture(scope="module")
def config():
    return read_recipe("digits", WORDS)


@pytest.fixture
def _no_neighbours(monkeypatch):
    """Starting them takes seconds; one test does."""
    monkeypatch.setattr(profile_grid, "workers_of_host", lambda threads: 1)


def measure(config):
    threads = torch.get_num_threads()
    try:
        return measure_grid_profile(config, "digits", build.open_data(config), lambda text: None)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def measured(config):
    return measure(config)


def test_profile_has_times_by_what_a_worker_does(measured):
    works = [GenerationWork.of(range(count), torus(2, 2)) for count in (1, 2, 4)]
    wide = GenerationWork.of([0, 1, 4, 5], torus(4, 4))
    assert measured.train_s.rows == measured.generation_s.rows == (1, 2, 4)
    assert measured.evaluate_s.rows == (*(work.passes for work in works), wide.passes)
    assert measured.score_s.rows == (*(work.generators for work in works), wide.generators)
    assert all(value > 0 for value in (*measured.train_s.values, *measured.evaluate_s.values))
    parts = measured.seconds(works[2])
    assert parts == pytest.approx(measured.generation_s.values[2])
    assert measured.cpu_share == 1 and measured.shape == "2x2"


def test_profile_has_generations_beside_busy_neighbours(measured):
    assert measured.busy_workers == min(16, num_cores())
    assert measured.busy_s.rows == (1, 4) and all(value > 0 for value in measured.busy_s.values)


def test_profile_has_the_bytes_of_an_exchange(config, measured):
    always = replace(config, grid=replace(config.grid, replacement="always"))
    factory = GridFactory.of(always, Path("none"), lambda text: None, must_keep=False)
    cells = [factory.cell(number) for number in range(4)]
    population = factory.population(cells, lambda text: None)
    population.evolve()
    population.release_workers()
    sent = pack_cells([0], {0: cells[0].state()})
    assert measured.messages == len(sent) == 3
    assert measured.state_bytes == pytest.approx(sum(map(len, sent)), abs=100)  # numbers in JSON


@pytest.mark.usefixtures("_no_neighbours")
def test_measurement_trains_few_batches_and_leaves_torchs_generator_unchanged(config, monkeypatch):
    monkeypatch.setattr(timed_generations, "_MOST", 2)
    monkeypatch.setattr(timed_generations, "_MOST_BATCHES", 3)
    trained = []
    train = timed_generations.Population.evolve
    monkeypatch.setattr(
        timed_generations.Population, "evolve", lambda self: (trained.append(self.options.batches), train(self))[1]
    )
    torch.manual_seed(3)
    before = torch.get_rng_state()
    grid = replace(config.grid, batches=300)
    found = measure(replace(config, grid=grid))
    assert torch.equal(before, torch.get_rng_state())
    assert set(trained) == {3}
    assert found.train_s.values[0] > 10 * found.evaluate_s.values[0]  # as long as 300 batches


def test_worker_of_a_place_reads_the_cells_around_it(config):
    place = WorkerPlace.of(replace(config.grid, shape="3x3"), [1, 1, 1, 1, 0, 0, 1, 1, 1])
    assert place.topology.neighbours == ((0, 2, 5, 4, 1), (1, 3, 6, 0, 4))
    assert place.work.cells == 2


def test_profile_is_read_as_it_was_written(tmp_path, measured):
    measured.write(tmp_path / "grid.json")
    assert read_grid_profile(tmp_path / "grid.json") == measured


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "is not the profile of a grid; name another file"),
        (json.dumps(profile().to_dict()), "is not the profile of a grid; name another file"),
        ('{"kind": "grid", "version": 99}', "a profile of version 99, not 1; measure it again"),
        ('{"kind": "grid", "version": 1}', "KeyError"),
    ],
)
def test_file_that_is_no_profile_of_a_grid_is_refused_in_one_line(tmp_path, text, problem):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as refused:
        read_grid_profile(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


@pytest.mark.parametrize("word", ["grid.shape=2x3", "grid.batches=3", "train.batch=8", "loss=hinge", "grid.radius=2"])
def test_fingerprint_follows_what_a_generation_costs(config, word):
    assert grid_fingerprint(read_recipe("digits", [*WORDS, word])) != grid_fingerprint(config)


@pytest.mark.parametrize("word", ["grid.age=2", "train.kimg=3", "workers=2", "seed=3", "every.save_kimg=1"])
def test_fingerprint_ignores_what_does_not_change_the_cost(config, word):
    assert grid_fingerprint(read_recipe("digits", [*WORDS, word])) == grid_fingerprint(config)


def test_costs_are_those_of_the_recipe():
    words = ["train.kimg=0.1", "every.save_kimg=0.032", "every.sample_kimg=0", "d.updates_per_step=2"]
    config = read_recipe("digits", [*WORDS, *words])
    found = grid_costs(config, grid_profile())
    assert found.images == 2 * 4 * 2 and found.generations == 7  # of 100 images
    assert found.gather_period == 2 and found.repeated == 0.5
    assert grid_costs(replace(config, workers=2, transport="mpi"), grid_profile()).repeated == 1


def written(tmp_path, *words):
    path = tmp_path / "grid.json"
    grid_profile(fingerprint=grid_fingerprint(read_recipe("digits", [*WORDS, *words]))).write(path)
    return ["--profile", str(path)]


def test_command_prints_a_table_of_workers_and_one_of_losses(tmp_path, capsys):
    words = ["plan", "digits", *WORDS, "train.kimg=7.2", "--workers", "1,2,4", *written(tmp_path)]
    assert main([*words, "--scaling", "strong", "--cost-per-hour", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    columns = "workers grid cells generation images/s efficiency exchange hours to 7.2 kimg cost"
    first = lines.index(columns.split())
    assert lines[first + 1] == ["1", "2x2", "4", "4", "s", "8", "100.0%", "0.0", "kB", "1", "2.00"]
    assert [line[:3] for line in lines[first + 2 : first + 4]] == [["2", "2x2", "2"], ["4", "2x2", "1"]]
    assert ["workers", "compute", "imbalance", "communication", "jitter", "stragglers", "failures"] in lines


def test_command_writes_a_document_that_is_valid_by_the_schema(tmp_path, capsys):
    assert main(["plan", "digits", *WORDS, "--workers", "1,4", "--json", *written(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    found = schema(GridPlan)
    assert_valid(document, found, found)
    assert [row["shape"] for row in document["rows"]] == ["2x2", "4x4"]
    with pytest.raises(AssertionError):
        assert_valid(document | {"speed": 1}, found, found)


@pytest.mark.usefixtures("_no_neighbours")
def test_command_measures_a_grid_without_data_and_writes_its_profile(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(timed_generations, "_MOST", 2)
    path = tmp_path / "grid.json"
    small = [
        "model={name: mlp, g_widths: [8], d_widths: [8]}",
        "grid.shape=2x1",
        "grid.batches=2",
        "grid.fitness.num_images=4",
    ]
    words = [
        "plan",
        "cellular-mnist",
        *small,
        "--shape",
        "1x8x8",
        "--classes",
        "10",
        "--workers",
        "1,2",
        "--profile",
        str(path),
    ]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert "note: mixtures are not scored, since there is no data" in first
    assert main(words) == 0 and capsys.readouterr().out == first
    assert main([*words, "grid.shape=2x2"]) == 2
    assert "is the profile of recipe cellular-mnist with another grid, networks or losses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "plan supports one pair of networks, not a grid; pass --workers 1,4 for the time of a grid"),
        (["--workers", "9", "--scaling", "strong"], "9 workers are too many for a grid of 4 cells; use at most 4"),
        (["--workers", "9999"], "9,999 workers with 4 cells each need a grid of"),
        (["--workers", "0"], "--workers must be numbers from 1"),
        (["--workers", "2", "--choose"], "--choose is for one pair of networks, not for a grid; leave it out"),
        (["--workers", "2", "--hours", "1"], "--hours is for one pair"),
        (["--workers", "2", "--memory", "1"], "--memory is for one pair"),
        (["--workers", "2", "--measure"], "--measure is for one pair"),
        (["--workers", "2", "--assume", "luck=1"], "unknown key 'luck'"),
    ],
)
def test_command_refuses_in_one_line(tmp_path, capsys, words, problem):
    given = written(tmp_path) if words else []
    assert main(["plan", "digits", *WORDS, *words, *given]) == 2
    error = capsys.readouterr().err
    assert problem in " ".join(error.split()) and "Traceback" not in error


def test_profile_of_a_grid_is_refused_for_one_pair(tmp_path, capsys):
    pair = [word for word in WORDS if not word.startswith("grid.")]
    assert main(["plan", "digits", *pair, "--workers", "2", *written(tmp_path)]) == 2
    assert "is not the profile of one pair of networks; name another file" in capsys.readouterr().err
