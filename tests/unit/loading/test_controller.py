"""The controller's thread, on a pipeline that only counts."""

import gc
import threading
import time

import torch
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.core.source import EncodedSource, TensorSpec
from paragan.loading import TensorBatches
from paragan.loading.control_law import Counters, Limits, Sizes
from paragan.loading.pipeline import Controller
from tests import tiny_run

MIB = 1 << 20
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


class CountingPipeline:
    """Reads take `latency_s`; the consumer takes ten batches per second."""

    def __init__(self, latency_s):
        self.latency_s = latency_s
        self.time_s = 0.0
        self.sizes = []
        self.resized = threading.Event()

    def counters(self):
        self.time_s += 0.25
        taken = int(10 * self.time_s)
        return Counters(
            time_s=self.time_s,
            num_taken=taken,
            wait_s=0.0,
            num_reads=taken,
            read_s=taken * self.latency_s,
            num_decodes=taken,
            decode_s=0.01 * taken,
            parts_per_batch=1,
            batch_bytes=MIB,
        )

    def resize(self, depth, readers, decoders):
        self.sizes.append(Sizes(depth, readers, decoders))
        self.resized.set()


def controller(pipeline, threads=64, num_bytes=100 * MIB):
    return Controller(pipeline, Limits(Sizes(3, 2, 1), threads, 2, num_bytes))


def test_controller_thread_resizes_a_slow_pipeline_and_ends():
    pipeline = CountingPipeline(1.0)
    running = controller(pipeline)
    assert pipeline.resized.wait(WAIT_S)
    running.end()
    assert not running.is_alive
    changes = running.values(False)
    assert [Sizes(change["depth"], change["readers"], change["decoders"]) for change in changes] == pipeline.sizes
    assert running.values(False) == []
    assert changes[0]["readers"] > 2 and changes[0]["reason"] == "congestion"


def test_controller_of_a_deleted_pipeline_ends():
    pipeline = CountingPipeline(0.01)
    running = controller(pipeline)
    del pipeline
    gc.collect()
    deadline = time.monotonic() + WAIT_S
    while running.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running.is_alive


def test_batches_with_automatic_depth_follow_the_latency_and_remain_the_same():
    source = SlowTable()
    fixed = TensorBatches(SlowTable(), 16, seed=1)
    with TensorBatches(source, 16, seed=1, depth="auto", max_readers=20) as batches:
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
    fixed.close()
    names = {thread.name for thread in threading.enumerate()}
    assert "loading controller" not in names


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
