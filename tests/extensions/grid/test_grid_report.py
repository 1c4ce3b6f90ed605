"""A grid of cells on the page: what the record says of it, drawn, bounded in size and safe."""

import json
import math
import re
import statistics

import pytest

from paragan.report.chart import run_end
from paragan.report.grid_record import Grid, GridHistory
from paragan.report.page import Page
from paragan.report.population import population_section
from paragan.report.record import Record
from paragan.report.scale import format_short
from tests.browser import made_grid, made_run
from tests.marks import slow
from tests.unit.report.test_report import Parsed, data_of, record


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_grid.make(tmp_path_factory.mktemp("run"), 2, 3, 30)


@pytest.fixture(scope="module")
def page(run):
    return Page(run).render()


def lines_of(folder, kind: str = "generation") -> list[dict]:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def population(*lines: dict, shape: tuple[int, int] = (1, 2), **grid: object) -> GridHistory:
    found = GridHistory().after_start({"shape": list(shape), **grid})
    for n, values in enumerate(lines):
        found.add(n, float(n), values)
    return found


def cells(*scores: float | None, **values: object) -> dict:
    return {str(cell): {"score": score, **values} for cell, score in enumerate(scores)}


def notes_of(found: GridHistory) -> list[str]:
    return population_section(found, run_end(1.0, 1.0))["notes"]


def tiles(page: str) -> list[tuple[str, str, str, str]]:
    """(classes, cell, score, letter of the loss) of the table of cells."""
    (figure,) = re.findall(r'<figure class="cells[ a-z]*">(.*?)</figure>', page, re.S)
    return re.findall(r'<td class="([^"]*)"><i>([^<]*)</i>([^< ]*)(?: <small>(.)</small>)?</td>', figure)


def test_every_cell_has_its_newest_score_and_the_lowest_is_marked(page, run):
    newest = lines_of(run)[-1]["cells"]
    scores = {cell: told["score"] for cell, told in newest.items()}
    best = min(scores, key=scores.get)
    found = tiles(page)
    assert [value for _, _, value, _ in found] == [format_short(score) for score in scores.values()]
    assert [cell for _, cell, _, _ in found] == [f"{cell} best" if cell == best else cell for cell in scores]
    assert [cell for classes, cell, _, _ in found if "top" in classes] == [f"{best} best"]
    assert f"Best mixture: cell {best} with " in Parsed(page).text


def test_cells_without_line_or_score_are_empty(tmp_path):
    values = {"0": {"score": None}, "2": {"score": math.nan}, "3": {"score": 4.5}, "9": {"score": 1.0}}
    grid = made_run.line("start", 0, grid={"shape": [2, 2]})
    folder = record(
        tmp_path / "run", json.dumps(grid), json.dumps(made_run.line("generation", 1, generation=1, cells=values))
    )
    found = tiles(Page(folder).render())
    assert [(shade, value) for shade, _, value, _ in found[:3]] == [("hx", "–")] * 3
    assert found[3][1:] == ("3 best", "4.5", "")


def test_names_from_the_record_stay_text(page):
    parsed = Parsed(page)
    assert "<b>nonsaturating</b>" in parsed.text and "<b>nonsaturating" not in page
    assert not [a for _, a in parsed.tags if "style" in a or any(name.startswith("on") for name in a)]


def test_the_curves_are_the_best_and_the_median_of_each_generation(page, run):
    lines = lines_of(run)[:-1]  # the last is told twice, with the ensemble
    scores = [[told["score"] for told in line["cells"].values()] for line in lines]
    drawn = (data := data_of(page))["charts"]["population-0"]
    assert data["places"][drawn[0]["places"]]["step"] == [line["step"] for line in lines]
    for line, (label, of) in zip(drawn, {"best": min, "median": statistics.median}.items(), strict=True):
        assert line["label"] == label and line["values"] == pytest.approx([of(told) for told in scores], rel=1e-4)


def test_mixture_of_best_cell_lists_its_neighbours(run, page):
    newest = lines_of(run)[-1]["cells"]
    best = min(newest, key=lambda cell: newest[cell]["score"])
    near = lines_of(run, "start")[0]["grid"]["neighbours"][int(best)]
    names = [f"cell {near[0]} (itself)", *(f"cell {cell}" for cell in near[1:])]
    parts = [f"{name} {weight:g}" for name, weight in zip(names, newest[best]["weights"], strict=True)]
    assert f"Mixture of cell {best}: {', '.join(parts)}." in Parsed(page).text


@pytest.mark.parametrize(("distance", "than"), [(0.5, ", better than"), (1.0, ", not better than"), (math.nan, "")])
def test_the_ensemble_is_held_against_the_best_mixture(distance, than):
    first = {"generation": 1, "cells": cells(1.0, 2.0)}
    ensemble = {"counts": {"1": 3, "0": 1, "7": 5, "x": 1}, "distance": distance}
    found = population(first, first | {"ensemble": ensemble})
    note = notes_of(found)[-1]
    assert note.startswith("Ensemble of 4, selected after training: cell 0 ×1, cell 1 ×3.")
    assert note.endswith(f"Score: {distance:g}{than} the best mixture." if than else "×3.")
    found.add(3, 3.0, {"generation": 2, "cells": cells(1.0, 2.0)})
    assert found.ensemble is None  # the run went on


def test_a_long_run_of_a_large_grid_gives_a_small_page(tmp_path):
    page = Page(made_grid.make(tmp_path / "run", 16, 16, 200)).render()
    assert len(page.encode()) <= 200_000  # 2 MB is promised
    assert len(tiles(page)) == 256


@pytest.mark.parametrize("shape", [(64, 64), slow((999, 4))])
def test_a_grid_of_thousands_is_drawn_without_numbers(tmp_path, shape):
    folder = made_grid.make(tmp_path / "run", *shape, 2)
    assert max(map(len, (folder / "metrics.jsonl").read_text().splitlines())) > 1 << 20
    page = Page(folder).render()
    assert len(page.encode()) <= 300_000 and "The grid is too large for numbers" in page
    assert len(re.findall(r'<td class="h\d(?: top)?"></td>', page)) == math.prod(shape) and not tiles(page)


def test_what_a_grid_keeps_of_a_record_is_bounded():
    large = {"generation": 0, "cells": {str(n): {"score": 1.0, "weights": [1] * 500} for n in range(9000)}}
    found = population(large, shape=(64, 64))
    for n in range(1, 40):
        found.add(n, 1.0, {"generation": n, "profile": {"wall_s": {f"r{n}-{m}": 1 for m in range(99)}}})
    assert len(found.latest.scores) == 4096 and len(found.wall_s) <= 16
    assert len(population(large).weights) == 64
    assert Grid.read({"shape": [1, 1], "losses": ["x" * 99] * 99}).losses == ("x" * 40,) * 16


def test_resumed_session_preserves_past_unless_grid_changed():
    found = population({"generation": 1, "cells": cells(1.0, 2.0)}, neighbours=[[0, 1], [1, 0]])
    again = found.after_start({"shape": [1, 2], "neighbours": [[0], [1]]})
    assert again.latest.number == 1 and again.grid.neighbours == ((0,), (1,))
    assert again.after_start(None) is again and again.after_start({"shape": [2, 2]}).latest is None


def test_a_run_of_one_game_has_no_such_part(tmp_path):
    folder = made_run.make(tmp_path / "one", steps=20)
    page = Page(folder).render()
    assert "Population" not in Parsed(page).text and "each row is one class" in page
    begun = record(tmp_path / "begun", json.dumps(made_grid.start(2, 2)))
    text = Parsed(Page(begun).render()).text
    assert "2 × 2 cells" in text and "Population" not in text


@pytest.mark.parametrize("missing", [1, 2, 300])
def test_a_generation_cut_short_waits_for_its_end(tmp_path, missing):
    folder = made_grid.make(tmp_path / "run", 2, 2, 3)
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole[:-missing])
    reader = Record(folder / "metrics.jsonl")
    reader.read()
    assert reader.history.population.latest.number == 3 and reader.history.population.ensemble is None
    (folder / "metrics.jsonl").write_bytes(whole)
    reader.read()
    assert reader.history.population.ensemble is not None and reader.history.population.profiled == 3


def test_record_names_the_neighbours_of_the_best_cell():
    named = []
    for neighbours in ([[0, 2], [1, 2], [2, 0]], [[0, 7], "x"]):
        found = population(shape=(1, 3), neighbours=neighbours)
        found.add(1, 1.0, {"generation": 1, "cells": cells(1.0, 2.0, 3.0, weights=[0.5, 0.5])})
        _, mixture = notes_of(found)
        named.append(mixture.removeprefix("Mixture of cell 0: "))
    assert named == ["cell 0 (itself) 0.5, cell 2 0.5.", "itself 0.5, neighbour 1 0.5."]
    assert GridHistory().after_start({"shape": [1, 3]}).grid.neighbours == ()
