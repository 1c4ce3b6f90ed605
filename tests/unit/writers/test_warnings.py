"""Warnings reach the user whatever writers a run has, and always on standard error."""

import sys

import pytest
import torch

from paragan.core.event import Event
from paragan.engine.multi_writer import MultiWriter
from paragan.writers import console
from tests.unit.api.test_networks_of_the_field import D, G, trainer

TEXTS = ("x of float64 is cast to float32", "x of sample 7 is not finite", "d: updates skipped, because")


class Samples(torch.utils.data.Dataset):
    """Rows of float64, one of which is not finite."""

    def __len__(self):
        return 24

    def __getitem__(self, number):
        return {"x": torch.full((6,), float("nan") if number == 7 else number / 24, dtype=torch.float64)}


@pytest.mark.parametrize("writers", [["jsonl"], ["jsonl", "images"], ["jsonl", "console"]])
def test_warnings_of_a_run_are_printed_with_any_writers(tmp_path, capsys, writers):
    trainer(G(), D(), tmp_path, Samples(), loading__prefetch=0, train__kimg=0.024, writers=writers).run()
    out, err = capsys.readouterr()
    for text in TEXTS:
        assert [line.startswith("warning: ") for line in err.splitlines() if text in line] == [True]
    assert "warning: " not in out


class Lines:
    def __init__(self):
        self.events = []

    def write(self, event):
        self.events.append(event)

    def close(self):
        pass


class ClosedPipe(Lines):
    def write(self, event):
        raise SystemExit(1)


def event(text, **values):
    return Event(kind="event", step=3, images=24, values={"text": text, **values})


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        (event("warning: rank 3 is a straggler"), ["warning: rank 3 is a straggler"]),
        (event("rollback 1 of 3", rollback={"name": "diverged"}), ["warning: rollback 1 of 3"]),
        (event("g: trains from 2 kimg"), []),
        (Event(kind="step", step=3, images=24, values={"text": "warning: none"}), []),
    ],
)
def test_only_warnings_are_printed_and_by_one_rank(capsys, written, printed):
    lines = Lines()
    MultiWriter([("jsonl", lines)]).write(written)
    MultiWriter([("events", lines)], is_main=False).write(written)
    assert capsys.readouterr().err.splitlines() == printed
    assert lines.events == [written] * 2


@pytest.mark.parametrize(
    ("written", "out", "err"),
    [
        (event("warning: rank 3 is a straggler"), [], ["warning: rank 3 is a straggler"]),
        (event("rollback 1 of 3", rollback={"name": "diverged"}), ["0.0 kimg  rollback 1 of 3"], []),
        (event("g: trains from 2 kimg"), ["0.0 kimg  g: trains from 2 kimg"], []),
    ],
)
def test_the_console_leaves_warnings_to_standard_error(tmp_path, capsys, written, out, err):
    MultiWriter([("console", console.Writer(None, tmp_path))]).write(written)
    printed = capsys.readouterr()
    assert (printed.out.splitlines(), printed.err.splitlines()) == (out, err)


def test_warnings_after_a_console_that_failed_are_printed(capsys):
    writer = MultiWriter([("console", ClosedPipe()), ("jsonl", Lines())])
    for text in ("warning: first", "warning: second"):
        writer.write(event(text))
    failed, *texts = capsys.readouterr().err.splitlines()
    assert failed.startswith("warning: writer console failed (1) and is switched off")
    assert texts == ["warning: first", "warning: second"]


def test_a_closed_standard_error_ends_no_run(monkeypatch, tmp_path):
    with (tmp_path / "closed").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    lines = Lines()
    MultiWriter([("jsonl", lines)]).write(event("warning: first"))
    assert len(lines.events) == 1
