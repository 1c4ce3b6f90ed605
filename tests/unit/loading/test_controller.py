"""The controller's thread: it follows the latency of storage, and ends with its pipeline."""

import gc
import threading
import time

import pytest
import torch
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.core.source import EncodedSource, TensorSpec
from paragan.loading import TensorBatches
from tests import tiny_run

WAIT_S = 10.0


class SlowTable(EncodedSource):
    """Hundred rows; a read takes `latency_s`."""

    fingerprint = "slow-table"
    latency_s = 0.0

    def __init__(self):
        self.tensors = {"row": TensorSpec((1,), torch.float32)}

    def __len__(self):
        return 100

    def read(self, rows):
        time.sleep(self.latency_s)
        return [bytes([row]) for row in rows]

    def decode(self, encoded, rows, places=None, seed=0):
        return {"row": torch.tensor([[float(data[0])] for data in encoded])}


def auto_batches(source, **settings):
    return TensorBatches(source, 16, seed=1, depth="auto", max_readers=20, **settings)


def threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("loading")}


def test_controller_of_deleted_batches_ends():
    batches = auto_batches(SlowTable())
    next(batches)
    assert "loading controller" in threads()
    del batches
    gc.collect()
    deadline = time.monotonic() + WAIT_S
    while threads() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not threads()


def test_batches_with_automatic_depth_follow_the_latency_and_remain_the_same():
    source = SlowTable()
    fixed = TensorBatches(SlowTable(), 16, seed=1)
    with auto_batches(source) as batches:
        deadline = time.monotonic() + WAIT_S
        source.latency_s = 0.1
        while batches.statistics().readers < 16 and time.monotonic() < deadline:
            assert torch.equal(next(batches)["row"], next(fixed)["row"])
            time.sleep(0.005)
        assert 16 <= batches.statistics().readers <= 20
        source.latency_s = 0.0
        while batches.statistics().readers > 2 and time.monotonic() < deadline + WAIT_S:
            assert torch.equal(next(batches)["row"], next(fixed)["row"])
            time.sleep(0.02)
        assert batches.statistics().readers == 2
        changes = batches._pipeline.loading_values(False)
        assert not batches._pipeline.loading_values(False)
    fixed.close()
    assert changes[0]["readers"] > 2 and changes[0]["reason"] == "congestion"
    assert changes[-1]["readers"] == 2 and changes[-1]["reason"] == "congestion has passed"
    assert not threads()


def test_a_wait_that_is_interrupted_counts_no_further_seconds(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with TensorBatches(SlowTable(), 16) as batches:
        next(batches)
        monkeypatch.setattr(batches._pipeline._stages._is_ready, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        waited_s = batches.statistics().wait_s
        time.sleep(0.05)
        assert batches.statistics().wait_s == waited_s


def folder_run(tmp_path, *words):
    images = tmp_path / "images"
    images.mkdir(exist_ok=True)
    for number in range(40):
        Image.new("L", (9, 9), 6 * number).save(images / f"{number}.png")
    settings = [*tiny_run.TINY, *tiny_run.SMALL, f"data.path={images}", "data.channels=1", *words]
    return read_recipe("own", settings)


def test_run_with_automatic_prefetch_records_the_loading_pipeline(tmp_path):
    config = folder_run(tmp_path, "loading.prefetch=auto", "loading.threads=2", "every.log_steps=1")
    trainer = build.trainer(config, tmp_path / "run", print, stop=lambda: False)
    kinds = []
    for event in trainer.run():
        kinds.append(event.kind)
        if event.kind == "loading":
            assert event.values["readers"] == 2 and event.values["depth"] >= 3
            assert event.line["step"] == event.step
        if event.kind == "step" and "loading" not in kinds:
            time.sleep(0.3)  # the controller decides four times a second
    assert "loading" in kinds
