"""A run in its folder: record, pictures, advice; numbers reach the host at log points only; a writer may fail."""

import json

import pytest
import torch
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import DivergedError
from paragan.core.event import Event
from paragan.core.types import Report
from paragan.engine.multi_writer import MultiWriter
from paragan.engine.options import EveryOptions
from paragan.engine.session import ProgressTimer, Session
from paragan.writers.console import clock_time
from paragan.writers.jsonl import Writer

SETTINGS = [
    "data.size=8", "model.width=8", "model.latent=16", "train.batch=16", "train.kimg=0.16", "every.log_steps=4",
    "every.sample_kimg=0.08",
    "every.save_kimg=0.08", "evaluation.features=null", "writers=[images,jsonl,console]",
]  # fmt: skip


def session(folder, *more):
    config = read_recipe("digits", [*SETTINGS, *more])
    trainer = build.trainer(config, folder, print, lambda: False)
    return Session(
        trainer=trainer,
        folder=folder,
        writer=build.writers(config, folder, 0),
        run_info={"recipe": "digits", "data": "digits"},
    )


def train(run, ended=True):
    """Train to the end, and record it."""
    for event in run.trainer.run():
        run.write(event)
    if ended:
        run.end(0, "finished")


def record(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_session_run_writes_record_and_samples(tmp_path, monkeypatch):
    reads = []
    read = Report.read
    monkeypatch.setattr(Report, "read", lambda self, *total: reads.append(self.step) or read(self, *total))
    run = session(tmp_path)
    train(run)
    assert reads == [4, 5, 8, 10, 10]  # at log points, of which the last step is one, and at checkpoints (5, 10)
    lines = record(tmp_path)
    assert [(x["kind"], x["step"]) for x in lines if x["kind"] not in ("advice", "telemetry")] == [
        ("start", 0), ("samples", 0), ("phases", 4), ("step", 4), ("samples", 5), ("checkpoint", 5), ("phases", 8),
        ("step", 8), ("phases", 10), ("step", 10), ("samples", 10), ("checkpoint", 10), ("phases", 10), ("end", 10),
    ]  # fmt: skip
    # at every fourth of the period of sheets
    assert [x["step"] for x in lines if x["kind"] == "telemetry"] == [0, 2, 3, 4, 5, 7, 8, 9, 10]
    start, step = lines[0], next(x for x in lines if x["kind"] == "step")
    assert (start["recipe"], start["resumed"], start["total_kimg"]) == ("digits", False, 0.16)
    assert (start["data"]["name"], start["data"]["class_names"]) == ("digits", list("0123456789"))
    assert start["players"]["g"]["weights"] == sum(p.numel() for p in run.trainer.gan.g.net.parameters())
    names = {f"{side}/{name}" for side in "gd" for name in ("loss/adversarial", "gradient_norm", "lr")}
    assert names | {"d/real", "d/fake", "images_per_s", "data_wait", "eta_s"} <= step.keys()
    assert step["g/lr"] == 1e-3
    samples = next(x for x in lines if x["kind"] == "samples")
    assert (samples["rows"], samples["columns"], samples["num"]) == (list("0123456789"), 10, 100)
    with Image.open(tmp_path / samples["path"]) as grid:
        assert grid.size == (10 * 34, 10 * 34)  # ten classes, ten columns, 8 px shown at 32 with a gap
        assert grid.getextrema() != (0, 0)


@pytest.mark.parametrize("kimg", ["0.08", "3.2"])
def test_session_player_without_updates_raises_diverged(tmp_path, kimg):
    run = session(tmp_path, f"train.kimg={kimg}", "every.save_kimg=0", "every.sample_kimg=0")
    weight = next(run.trainer.gan.g.net.parameters())
    weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(DivergedError, match=r"g: no update of the last (5|100) was made"):
        train(run, ended=False)
    run.writer.close()


def test_session_lazy_penalty_is_recorded(tmp_path):
    """Every 8th update from the first on; the numbers are read at other steps."""
    run = session(tmp_path, "every.log_steps=5")
    train(run)
    steps = [x for x in record(tmp_path) if x["kind"] == "step"]
    assert [x["step"] for x in steps] == [5, 10]
    assert all(x["d/loss/r1"] >= 0 for x in steps)


def test_session_resumed_run_gives_advice_once(tmp_path):
    """Of few images at the start; the same after a resume, also where nothing else was told."""
    advised = []
    for kimg in ("0.08", "0.16"):
        more = [f"train.kimg={kimg}", "every.sample_kimg=0", "data.size=8"]
        config = read_recipe("digits", [*SETTINGS, *more])
        trainer = build.trainer(config, tmp_path, print, lambda: False)
        trainer.batches.source = Few(trainer.batches.source)
        trainer.resume()
        writer = build.writers(config, tmp_path, trainer.clock.step)
        run = Session(trainer=trainer, folder=tmp_path, writer=writer, command=lambda changes: "advised")
        train(run)
        advised.append(run.advised_command)
    assert [x["name"] for x in record(tmp_path) if x["kind"] == "advice"] == ["few_images"]
    assert advised == ["advised", ""]  # the record of an earlier session is no source of commands


class Few:
    """Says that it has 100 images."""

    def __init__(self, source):
        self._source = source

    def __getattr__(self, name):
        return getattr(self._source, name)

    def __len__(self):
        return 100


class FailingWriter:
    """Fails at its third event."""

    def __init__(self, error):
        self.kinds, self.closed, self.error = [], False, error

    def write(self, event):
        self.kinds.append(event.kind)
        if len(self.kinds) == 3:
            raise self.error

    def close(self):
        self.closed = True


FAILURES = {
    "no space left on the device": OSError(28, "No space left\non device"),
    "samples: Permission denied": OSError(13, "Permission denied", "samples"),
    "1": SystemExit(1),  # as rich leaves where the reader of a pipe is gone
    "KeyError": KeyError(),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_session_writer_fails_is_reported_once_and_switched_off(tmp_path, reason):
    run, failing = session(tmp_path), FailingWriter(FAILURES[reason])
    run.writer = MultiWriter([("failing", failing), ("jsonl", run.writer._writers["jsonl"])])
    train(run)
    assert run.trainer.is_finished
    assert len(failing.kinds) == 3
    events = [x["text"] for x in record(tmp_path) if x["kind"] == "event"]
    assert events == [f"warning: writer failing failed ({reason}) and is switched off; training continues"]
    assert failing.closed
    assert record(tmp_path)[-1]["kind"] == "end"


@pytest.mark.parametrize(
    ("period", "steps"), [("1", [0, 10]), ("0.064", [0, 4, 8, 10]), ("0.08", [0, 5, 10]), ("0", [])]
)
def test_a_finished_run_ends_with_a_sheet(tmp_path, period, steps):
    run = session(tmp_path, f"every.sample_kimg={period}", "every.save_kimg=0")
    train(run)
    assert [x["step"] for x in record(tmp_path) if x["kind"] == "samples"] == steps
    assert sorted(path.name for path in tmp_path.glob("samples/*.png")) == [f"step-{n:07d}.png" for n in steps]


@pytest.mark.parametrize(
    ("period", "stopped_at", "steps"), [("1", 6, [0, 6, 10]), ("0.08", 5, [0, 5, 10]), ("0", 6, [])]
)
def test_a_stopped_run_ends_with_a_sheet_after_its_checkpoint(tmp_path, period, stopped_at, steps):
    run = session(tmp_path, f"every.sample_kimg={period}", "every.save_kimg=0")
    run.trainer.stop = lambda: run.trainer.clock.step == stopped_at
    train(run)
    ends = [x["kind"] for x in record(tmp_path) if x["step"] == stopped_at and x["kind"] in ("checkpoint", "samples")]
    assert ends == {"1": ["checkpoint", "samples"], "0.08": ["samples", "checkpoint"], "0": ["checkpoint"]}[period]
    run = session(tmp_path, f"every.sample_kimg={period}")
    assert run.trainer.resume()
    train(run)
    assert sorted(path.name for path in tmp_path.glob("samples/*.png")) == [f"step-{n:07d}.png" for n in steps]


def test_session_skipped_updates_are_reported(tmp_path):
    run = session(tmp_path, "train.kimg=0.32")
    g = run.trainer.gan.g
    count = g._count
    g._count = lambda ok, batch: count(ok & torch.tensor(g.version != 2), batch)
    train(run)
    events = [(x["step"], x["text"]) for x in record(tmp_path) if x["kind"] == "event"]
    assert events == [(4, "warning: g: updates skipped, because their gradients were not finite: 1")]


def test_jsonl_resumed_record_drops_later_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 4}\n{"step": 5}\n{"step": 7}\n{"st')
    writer = Writer(None, tmp_path, step=5)
    writer.write(Event(kind="step", step=6, images=60, seconds=0.1))
    writer.close()
    assert [x["step"] for x in record(tmp_path)] == [4, 5, 6]


def test_jsonl_failed_attempt_is_overwritten(tmp_path):
    """It was refused, or killed before its first checkpoint: the next begins its own record."""
    (tmp_path / "metrics.jsonl").write_text('{"kind": "start", "step": 0}\n{"kind": "score", "step": 0}\n')
    Writer(None, tmp_path, step=-1).close()
    assert record(tmp_path) == []


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3725, "1:02:05")])
def test_clock_time_formats_hours_and_minutes(seconds, text):
    assert clock_time(seconds) == text


@pytest.fixture
def elapse(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def elapse(seconds: float) -> None:
        now[0] += seconds

    return elapse


def timer() -> ProgressTimer:
    return ProgressTimer(total=10_000, every=EveryOptions(score_kimg=0, sample_kimg=0, save_kimg=0), began=0.0)


def timed_run(elapse, seconds: list[float]) -> ProgressTimer:
    timed = timer()
    for step, spent in enumerate(seconds, start=1):
        elapse(spent)
        timed.record(Event(kind="step", step=step, images=10 * step))
    return timed


def test_timer_first_step_is_a_warm_up(elapse):
    timed = timed_run(elapse, [5.0] + [0.1] * 9)
    assert timed.images_per_s() == pytest.approx(100)
    assert timed.eta_s(100) == pytest.approx(99)


def test_timer_single_step_gives_an_estimate(elapse):
    assert timed_run(elapse, []).images_per_s() == 0
    assert timed_run(elapse, [5.0]).images_per_s() == pytest.approx(2)


def test_timer_run_beyond_its_length_has_eta_zero():
    """A generation of a grid may be longer than the run."""
    every = EveryOptions(score_kimg=1, sample_kimg=1, save_kimg=1)
    timed = ProgressTimer(total=1000, every=every, began=0.0)
    timed.record(Event(kind="checkpoint", step=100, images=9600, repeat_s=5.0))
    assert timed.eta_s(9600) == 0


@pytest.mark.parametrize("kind", ["phases", "traffic", "loading", "delays", "event"])
def test_timer_event_of_a_step_that_comes_before_it_takes_none_of_its_images(kind):
    """At a log point the phases of a step are written before its numbers; with every.log_steps=1 at each."""
    timed = timer()
    for step in range(1, 4):
        timed.record(Event(kind=kind, step=step, images=10 * step))
        timed.record(Event(kind="step", step=step, images=10 * step))
    assert timed.images_per_s() > 0


def test_timer_resume_and_rollback_count_the_images_of_their_own_steps(elapse):
    timed = timer()
    timed.record(Event(kind="start", step=100, images=1000))
    for step in (101, 102):
        elapse(1.0)
        timed.record(Event(kind="step", step=step, images=10 * step))
    assert timed.images_per_s() == pytest.approx(10)
    timed.record(Event(kind="event", step=50, images=500))
    elapse(1.0)
    timed.record(Event(kind="step", step=51, images=510))
    assert timed.images_per_s() == pytest.approx(10)


def test_timer_eta_includes_periodic_work(elapse):
    """100 steps at 0.1 s, pictures at 1 s every 10 steps, a score at 3 s every 50, of which the first takes 20."""
    pace = ProgressTimer(total=1000, every=EveryOptions(sample_kimg=0.1, score_kimg=0.5, save_kimg=0), began=0.0)

    def spend(seconds, kind, images=0, again_s=None):
        elapse(seconds)
        pace.record(Event(kind=kind, step=0, images=images, repeat_s=again_s))

    spend(20, "score", again_s=3)
    for step in range(10):
        spend(0.1, "step", 10 * step + 10)
    spend(1, "samples", 100)
    assert pace.images_per_s() == pytest.approx(100)
    assert pace.eta_s(100) == pytest.approx(90 * 0.1 + 9 * 1 + 2 * 3)
    assert pace.seconds() == pytest.approx(22)
