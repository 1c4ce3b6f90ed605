"""The record of a run, metrics.jsonl: what another program does to it is noticed."""

import json
import os

import pytest

from paragan.core.event import Event
from paragan.writers.jsonl import RankWriter, Writer


def _rotate(path):
    """Empty the file in place, as a log rotation with copytruncate."""
    path.with_suffix(".1").write_bytes(path.read_bytes())
    os.truncate(path, 0)


def _edit(path):
    """Write the first half of the lines in place, as an editor that was opened earlier."""
    lines = path.read_bytes().splitlines(keepends=True)
    with path.open("r+b") as file:
        file.writelines(lines[: len(lines) // 2])
        file.truncate()


@pytest.mark.parametrize("kind", ["step", "checkpoint"])  # the first line after the truncation
@pytest.mark.parametrize(("shorten", "left"), [(_rotate, []), (_edit, [0])])
def test_a_record_that_another_program_shortens_is_noticed_once(tmp_path, capsys, kind, shorten, left):
    writer = Writer(None, tmp_path)
    path = tmp_path / "metrics.jsonl"
    events = [Event(kind=kind, step=step, images=step, values={}) for step in range(5)]
    writer.write(events[0])
    writer.write(events[1])
    before = path.stat().st_size
    shorten(path)
    lost = before - path.stat().st_size
    writer.write(events[2])
    assert f"metrics.jsonl: {lost:,} bytes of the record are gone" in capsys.readouterr().err
    writer.write(events[3])
    writer.write(Event(kind="end", step=4, images=4, values={}))
    writer.close()
    assert capsys.readouterr().err == ""
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [*left, 2, 3, 4]


def test_the_record_of_a_rank_that_another_program_shortens_is_noticed(tmp_path, capsys):
    writer = RankWriter(tmp_path / "ranks" / "rank-1.jsonl", {}, {})
    writer.write(Event(kind="end", step=0, images=0, values={}))
    _rotate(tmp_path / "ranks" / "rank-1.jsonl")
    writer.write(Event(kind="end", step=1, images=1, values={}))
    writer.close()
    assert "rank-1.jsonl: " in capsys.readouterr().err


def test_a_resumed_record_is_not_called_shortened(tmp_path, capsys):
    for step in (0, 1):
        writer = Writer(None, tmp_path, step)
        for number in (1, 2, 3):
            writer.write(Event(kind="step", step=number, images=0, values={}))
        writer.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("step", "left"), [(-1, []), (0, ["start", "advice"]), (1, ["start", "samples", "advice", "step"])]
)
def test_a_resumed_record_lacks_what_its_session_repeats(tmp_path, step, left):
    writer = Writer(None, tmp_path)
    for kind, at in (("start", 0), ("samples", 0), ("advice", 0), ("step", 1), ("step", 2)):
        writer.write(Event(kind=kind, step=at, images=at, values={}))
    writer.close()
    Writer(None, tmp_path, step).close()
    assert [json.loads(line)["kind"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == left
