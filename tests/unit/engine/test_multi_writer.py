"""Several writers as one: a writer that fails is reported once, whatever fails with it."""

import re

import pytest

from paragan.core.event import Event
from paragan.engine.multi_writer import MultiWriter

STEP = Event(kind="step", step=3, images=96, values={"d_loss": 0.5})


class Recorder:
    """Writer that holds the events; it fails on events of these kinds."""

    def __init__(self, *failing_kinds):
        self.failing_kinds = failing_kinds
        self.events = []
        self.num_closed = 0

    def write(self, event):
        if event.kind in self.failing_kinds:
            raise OSError("disk full")
        self.events.append(event)

    def close(self):
        self.num_closed += 1


def reported(recorder):
    """The writers that messages name, in order."""
    return [named_in(event.values["text"]) for event in recorder.events if event.kind == "event"]


def named_in(message):
    return re.match(r"warning: writer (\w+) failed", message)[1]


@pytest.mark.parametrize(
    "failing",
    [
        {"a": ("step",)},
        {"a": ("step",), "b": ("step",)},
        {"a": ("step", "event"), "b": ("step", "event")},
        {"a": ("step", "event"), "b": ("step", "event"), "c": ("step", "event")},
        {"a": ("step",), "b": ("event",)},
        {"a": ("event",), "b": ("step", "event"), "c": ("event",)},
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_writers_that_fail_together_or_on_the_message_are_closed_and_reported_once_each(failing, is_first):
    recorder = Recorder()
    writers = {name: Recorder(*kinds) for name, kinds in failing.items()}
    named = [("record", recorder), *writers.items()] if is_first else [*writers.items(), ("record", recorder)]
    both = MultiWriter(named)
    for _ in range(2):
        both.write(STEP)
    assert sorted(reported(recorder)) == sorted(failing)
    assert [writer.num_closed for writer in writers.values()] == [1] * len(writers)
    assert [event for event in recorder.events if event.kind == "step"] == [STEP, STEP]
    assert recorder.num_closed == 0


@pytest.mark.parametrize("other", ["jsonl", "wandb"])
def test_failures_together_with_the_console_are_printed(other, capsys):
    MultiWriter([(other, Recorder("step")), ("console", Recorder("step", "event"))]).write(STEP)
    lines = capsys.readouterr().err.splitlines()
    assert [named_in(line) for line in lines] == [other, "console"]


def test_failure_with_a_console_is_not_printed_twice(capsys):
    console = Recorder()
    MultiWriter([("jsonl", Recorder("step")), ("console", console)]).write(STEP)
    assert reported(console) == ["jsonl"]
    (line,) = capsys.readouterr().err.splitlines()
    assert named_in(line) == "jsonl"


class Closed:
    """A standard error whose reader has gone, or that is closed."""

    def __init__(self, error):
        self.error = error

    def write(self, text):
        raise self.error

    flush = isatty = write


class Unclosable(Recorder):
    def close(self):
        super().close()
        raise OSError("disk full")


@pytest.mark.parametrize("error", [BrokenPipeError("no reader"), OSError("disk full"), ValueError("closed file")])
def test_a_writer_that_fails_at_the_end_is_no_error_without_standard_error(error, monkeypatch):
    last = Recorder()
    monkeypatch.setattr("sys.stderr", Closed(error))
    MultiWriter([("a", Unclosable()), ("b", last)]).close()
    assert last.num_closed == 1
