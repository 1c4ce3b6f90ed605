"""The controller's thread, on a pipeline that only counts."""

from __future__ import annotations

import gc
import threading
import time

from paragan.loading.control_law import Counters, Sizes
from paragan.loading.controller import Controller, decision_values
from paragan.loading.host_budget import HostBudget

MIB = 1 << 20
WAIT_S = 10.0


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
        return Counters(self.time_s, taken, 0.0, taken, taken * self.latency_s, taken, 0.01 * taken, 1.0, MIB)

    def resize(self, depth, readers, decoders):
        self.sizes.append(Sizes(depth, readers, decoders))
        self.resized.set()


def controller(pipeline, threads=64, num_bytes=100 * MIB):
    return Controller(pipeline, Sizes(3, 2, 1), 2, HostBudget(threads, num_bytes))


def test_controller_thread_resizes_a_slow_pipeline_and_ends():
    pipeline = CountingPipeline(1.0)
    running = controller(pipeline)
    assert pipeline.resized.wait(WAIT_S)
    running.end()
    assert not running.is_alive
    changes = running.take_changes()
    assert [change.sizes for change in changes] == pipeline.sizes
    assert running.take_changes() == []
    assert changes[0].sizes.readers > 2


def test_controller_decision_values_have_sizes_and_measurements():
    pipeline = CountingPipeline(1.0)
    running = controller(pipeline)
    running.end()
    for _ in range(20):
        running.update(pipeline)
    values = decision_values(running.newest)
    assert (values["read_ms"], values["decode_ms"], values["stalls"]) == (1000, 10, 0)
    assert values["readers"] >= 10


def test_controller_respects_the_budget_of_threads_and_bytes():
    pipeline = CountingPipeline(1.0)
    running = controller(pipeline, threads=7, num_bytes=6 * MIB)
    running.end()
    for _ in range(30):
        running.update(pipeline)
    assert running.newest.sizes == Sizes(6, 6, 1)


def test_controller_of_a_deleted_pipeline_ends():
    pipeline = CountingPipeline(0.01)
    running = controller(pipeline)
    del pipeline
    gc.collect()
    deadline = time.monotonic() + WAIT_S
    while running.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running.is_alive
