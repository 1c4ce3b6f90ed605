"""Stages of the pipeline: many reads of one batch at once, parts in any order, and bounded memory."""

import random
import threading
import time

import numpy as np
import pytest
import torch

from paragan.core.errors import DataError
from paragan.core.source import EncodedSource, image_specs
from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline
from tests.unit.loading.test_pipeline import CPU, WAIT_S, eventually, no_thread_remains, same, threads_alive

__all__ = ["no_thread_remains"]
SAMPLE = 3 * 4 * 4 + 8  # bytes of the tensors


class Encoded(EncodedSource):
    """Sixty images of the row number, `num_bytes` each in storage, which takes a random time to respond."""

    class_names = ("even", "odd")
    fingerprint = "encoded"

    def __init__(self, longest_s=0.002, num_bytes=100, damaged=()):
        self.tensors = image_specs((3, 4, 4), has_labels=True)
        self.longest_s = longest_s
        self.num_bytes = num_bytes
        self.damaged = set(damaged)
        self.num_reading = self.max_reading = self.num_decoding = self.max_decoding = 0
        self.sizes = []
        self.lock = threading.Lock()

    def __len__(self):
        return 60

    def read(self, rows):
        with self.lock:
            self.sizes.append(len(rows))
            self.num_reading += 1
            self.max_reading = max(self.max_reading, self.num_reading)
        time.sleep(random.random() * self.longest_s)
        with self.lock:
            self.num_reading -= 1
        return [bytes([row]) * self.num_bytes for row in rows]

    def decode(self, encoded, rows, places=None, seed=0):
        with self.lock:
            self.num_decoding += 1
            self.max_decoding = max(self.max_decoding, self.num_decoding)
        time.sleep(random.random() * self.longest_s)
        with self.lock:
            self.num_decoding -= 1
        first = np.array([data[0] for data in encoded], np.uint8)
        assert first.tolist() == [int(row) for row in rows]  # each sample has its bytes
        if bad := self.damaged.intersection(first.tolist()):
            raise DataError(f"image {min(bad)} is damaged")
        x_B = torch.from_numpy(first)
        image = x_B[:, None, None, None].repeat(1, 3, 4, 4) + torch.arange(4, dtype=torch.uint8)
        return {"image": image, "label": x_B.long() % 2}


def loader(source=None, batch=16, share=None):
    return Loader(source or Encoded(0), batch, 3, CPU, flip=True, share=share)


def pipeline(source, depth, readers, decoders, batch=16, share=None, **more):
    return Pipeline(loader(source, batch, share), depth, readers, decoders, timeout_s=WAIT_S, **more)


@pytest.mark.parametrize(
    ("depth", "readers", "decoders"), [(1, 1, 1), (1, 8, 2), (2, 0, 3), (4, 3, 1), (6, 16, 4), (3, 40, 1), (5, 2, 7)]
)
def test_batches_are_those_of_the_loader_for_any_threads(depth, readers, decoders):
    plain = loader()
    with_share = loader(share=(3, 7))
    ahead = pipeline(Encoded(), depth, readers, decoders)
    part = pipeline(Encoded(), depth, readers, decoders, share=(3, 7))
    for _ in range(12):
        assert same(next(ahead), next(plain))
        assert same(next(part), next(with_share))
    ahead.close()
    part.close()


def test_samples_of_one_batch_are_read_at_once():
    source = Encoded(longest_s=0.05)
    ahead = pipeline(source, 1, 8, 1)
    next(ahead)
    assert source.sizes == [2] * 8
    assert 3 <= source.max_reading <= 8 and source.max_decoding == 1
    ahead.close()


def test_limits_change_while_threads_work():
    source = Encoded()
    ahead = pipeline(source, 2, 1, 1)
    plain = loader()
    for depth, readers, decoders in ((2, 1, 1), (8, 6, 3), (1, 0, 1), (4, 12, 1), (2, 2, 2)):
        ahead.resize(depth, readers, decoders)
        for _ in range(4):
            assert same(next(ahead), next(plain))
        assert eventually(lambda n=readers + decoders: len(threads_alive()) == n)
        statistics = ahead.statistics()
        assert (statistics.depth, statistics.readers, statistics.decoders) == (depth, readers, decoders)
    ahead.close()


def test_a_larger_depth_has_effect_before_the_next_batch():
    ahead = pipeline(Encoded(0), 2, 1, 1)
    next(ahead)
    ahead.resize(5, 1, 1)
    assert eventually(lambda: ahead.statistics().num_ready == 5)
    ahead.resize(1, 1, 1)
    plain = loader()
    next(plain)
    for _ in range(6):
        assert same(next(ahead), next(plain))  # nothing that was read is dropped
    assert eventually(lambda: ahead.statistics().num_ready == 1)
    ahead.close()


@pytest.mark.parametrize("readers", [0, 1, 5])
def test_memory_held_is_counted_and_does_not_exceed_the_limit(readers):
    limit = 5 * 16 * (SAMPLE + 100)
    ahead = pipeline(Encoded(), 30, readers, 2, max_bytes=limit)
    plain = loader()
    held = []
    for _ in range(30):
        assert same(next(ahead), next(plain))
        for _ in range(5):
            held.append(ahead.statistics().bytes_held)
            time.sleep(0.001)
    assert limit / 2 < max(held) <= limit
    ahead.close()


def test_a_batch_larger_than_the_limit_is_still_read():
    ahead = pipeline(Encoded(num_bytes=5000), 8, 4, 2, max_bytes=10)
    plain = loader(Encoded(0, num_bytes=5000))
    for _ in range(5):
        assert same(next(ahead), next(plain))
    ahead.close()


def test_nothing_is_held_after_errors_jumps_and_close():
    row = int(loader()._order.at(np.arange(40, 41))[0])  # of batch 2
    source = Encoded(damaged=[row])
    ahead = pipeline(source, 6, 4, 2)
    plain = loader()
    for _ in range(2):
        assert same(next(ahead), next(plain))
    for _ in range(2):
        with pytest.raises(DataError, match=f"image {row} is damaged"):
            next(ahead)
        assert ahead.position == 2
    source.damaged.clear()
    for position in (2, 50, 51, 7, 8):
        ahead.position = plain.position = position
        assert same(next(ahead), next(plain))
    assert eventually(lambda: ahead.statistics().bytes_held == 6 * 16 * SAMPLE)  # finished batches
    stages = ahead._stages
    ahead.close()
    assert stages.statistics().bytes_held == 0


def test_statistics_describe_reads_and_waits():
    source = Encoded(longest_s=0.02)
    ahead = pipeline(source, 3, 2, 1)
    assert ahead.statistics().num_fetches == 0
    for _ in range(4):
        next(ahead)
    assert eventually(lambda: ahead.statistics().num_ready == 3)
    statistics = ahead.statistics()
    assert statistics.num_batches == 4 and statistics.num_fetches == statistics.num_decodes == 2 * 6  # two parts each
    assert statistics.parts_per_batch == 2 and statistics.batch_bytes == 16 * (2 * SAMPLE + 100)
    assert 0 < statistics.read_s <= 12 * 0.02 * 2 and statistics.decode_s > 0 and statistics.wait_s > 0
    assert statistics.num_encoded == 0 and statistics.bytes_held == 3 * 16 * SAMPLE
    ahead.close()
