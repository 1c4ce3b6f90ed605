"""What every writer keeps: it takes any note in any order, writes only into the run folder, and closes."""

import json
from dataclasses import replace

import pytest
import torch

from paragan.core import registry
from paragan.core.event import Event
from paragan.writers import _tracker, jsonl


def event(kind, step=40, images=960, seconds=2.0, **values):
    return Event(kind=kind, step=step, images=images, seconds=seconds, values=values)


SHEET = {"path": "samples/step-0.png", "columns": 2, "rows": ["a"]}
NOTES = [
    event("start", 0, 0, 0.0, recipe="digits", total_kimg=1.0, resumed=False),
    replace(event("samples", 0, 0, 0.1, **SHEET), x_BCHW=torch.zeros(2, 1, 8, 8), columns=2),
    event("step", 20, 640, 1.0, **{"d/loss/adversarial": 0.5}, images_per_s=100.0, eta_s=3.0, data_wait=0.0),
    event("step", **{"d/loss/adversarial": float("nan")}, images_per_s=0.0, eta_s=0.0, data_wait=1.0),
    event("telemetry", diversity=0.9),
    event("score", **{"fd[judge]": 3.0}, num_images=10, protocol={"extractor": "judge"}),
    event("advice", name="d_overfits", value=0.7, means="D knows them.", **{"try": "More images."}),
    event("checkpoint", path="checkpoints/step-40"),
    event("event", text="[bold]markup[/] and \x1b[31mcontrol"),
    event("something new"),
    event("end", code=0, reason="finished"),
]


@pytest.fixture(params=registry.names("writers"))
def writer(request, tmp_path, monkeypatch):
    """One writer next to the record, which is the first in any run."""
    package = {"prometheus": "prometheus_client"}.get(request.param, request.param)
    if package in ("tensorboard", "wandb", "mlflow", "prometheus_client"):
        pytest.importorskip(package, reason=f"the extra `{request.param}` is not installed")
    module = registry.load_module("writers", request.param)
    (tmp_path / "run").mkdir()
    record = jsonl.Writer(None, tmp_path / "run")
    options = registry.options("writers", request.param)
    monkeypatch.setattr(_tracker, "FINISH_S", 200.0)  # of a busy machine, too
    made = module.Writer(options(), tmp_path / "run", 0)
    yield record, made
    made.close()
    record.close()


@pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow", "ignore:The ``noload``")
def test_it_takes_every_note(writer, tmp_path):
    for note in NOTES:
        for each in writer:
            each.write(note)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_tensorboard_has_numbers_and_images(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = registry.load_module("writers", "tensorboard").Writer(
        registry.options("writers", "tensorboard")(), tmp_path, 0
    )
    for note in NOTES:
        made.write(note)
    made.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("score/fd[judge]")] == [(40, 3.0)]
    assert [e.step for e in events.Scalars("step/images_per_s")] == [20, 40]
    assert events.Tags()["images"] == ["samples"]
    assert b"extractor: judge" in events.Tensors("score/protocol/text_summary")[0].tensor_proto.string_val[0]


def test_a_resumed_run_keeps_the_numbers_of_its_checkpoint(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for start, steps in ((0, (10, 20, 25)), (20, (30,))):  # stopped at 25, the checkpoint is of 20
        made = registry.load_module("writers", "tensorboard").Writer(
            registry.options("writers", "tensorboard")(), tmp_path, start
        )
        for step in steps:
            made.write(event("score", step, fd=float(step)))
        made.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [e.step for e in events.Scalars("score/fd")] == [10, 20, 30]


def test_the_record_catches_up_after_a_full_disk(tmp_path):
    writer = jsonl.Writer(None, tmp_path)
    file = writer._file
    writer.write(event("step", 1))
    with open("/dev/full", "wb", buffering=0) as full:
        writer._file = full
        writer.write(event("score", 2))
        writer.write(event("step", 3))
    writer._file = file
    writer.write(event("step", 4))
    writer.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_close_with_unwritten_lines_raises(tmp_path):
    writer = jsonl.Writer(None, tmp_path)
    writer._file.close()
    writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 the writer closes it
    writer.write(NOTES[0])
    with pytest.raises(OSError, match="bytes of the record could not be written"):
        writer.close()
    assert writer._file.closed
