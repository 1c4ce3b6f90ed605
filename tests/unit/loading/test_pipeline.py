"""The pipeline: the loader's batches, read and decoded ahead by threads, in order and in bounded memory."""

import gc
import random
import threading
import time
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from paragan.core.errors import DataError
from paragan.core.source import EncodedSource, image_specs
from paragan.loading.loader import Loader, next_joint_batch
from paragan.loading.pipeline import DeviceCopy, Pipeline

CPU = torch.device("cpu")
WAIT_S = 30.0
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
        self.sizes = []
        self.running = {"read": 0, "decode": 0}
        self.most = dict(self.running)
        self.lock = threading.Lock()

    def __len__(self):
        return 60

    @contextmanager
    def counted(self, kind):
        with self.lock:
            self.running[kind] += 1
            self.most[kind] = max(self.most[kind], self.running[kind])
        time.sleep(random.random() * self.longest_s)
        yield
        with self.lock:
            self.running[kind] -= 1

    def read(self, rows):
        with self.counted("read"):
            self.sizes.append(len(rows))
            return [bytes([row]) * self.num_bytes for row in rows]

    def decode(self, encoded, rows, places=None, seed=0):
        first = np.array([data[0] for data in encoded], np.uint8)
        assert first.tolist() == [int(row) for row in rows]  # each sample has its bytes
        if bad := self.damaged.intersection(first.tolist()):
            raise DataError(f"image {min(bad)} is damaged")
        x_B = torch.from_numpy(first)
        with self.counted("decode"):
            image = x_B[:, None, None, None].repeat(1, 3, 4, 4) + torch.arange(4, dtype=torch.uint8)
            return {"image": image, "label": x_B.long() % 2}


def loader(source=None, seed=3, share=None):
    return Loader(source or Encoded(0), 16, seed, CPU, flip=True, share=share)


def pipeline(source=None, depth=4, readers=0, decoders=2, seed=3, share=None, timeout_s=WAIT_S, **more):
    return Pipeline(loader(source or Encoded(), seed, share), depth, readers, decoders, timeout_s=timeout_s, **more)


def same(a, b):
    return a.rows == b.rows and all(torch.equal(a.tensors[name], b.tensors[name]) for name in b.tensors)


def eventually(condition):
    """Whether it becomes true within the limit."""
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def threads_alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("loading")]


@pytest.fixture(autouse=True)
def no_thread_remains():
    yield
    if threads_alive():
        gc.collect()
    assert eventually(lambda: not threads_alive())


@pytest.mark.parametrize(
    ("depth", "readers", "decoders"), [(1, 1, 1), (1, 8, 2), (2, 0, 3), (4, 3, 1), (6, 16, 4), (3, 40, 1), (5, 2, 7)]
)
def test_batches_are_those_of_the_loader_for_any_threads(depth, readers, decoders):
    plain = loader()
    with_share = loader(share=(3, 7))
    source = Encoded()
    ahead = pipeline(source, depth, readers, decoders)
    part = pipeline(Encoded(), depth, readers, decoders, share=(3, 7))
    for _ in range(12):
        assert same(next(ahead), next(plain))
        assert same(next(part), next(with_share))
    assert source.most["read"] <= (readers or decoders) and source.most["decode"] <= decoders
    ahead.close()
    part.close()


def test_samples_of_one_batch_are_read_at_once():
    source = Encoded(longest_s=0.05)
    ahead = pipeline(source, 1, 8, 1)
    next(ahead)
    assert source.sizes == [2] * 8
    assert 3 <= source.most["read"] <= 8
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
    plain = loader()
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


def test_data_in_memory_is_not_divided_and_no_more_batches_are_fetched_than_the_depth():
    source = Encoded(0)
    source.is_decoded = False
    ahead = pipeline(source, depth=3, decoders=3)
    next(ahead)
    assert eventually(lambda: source.sizes == [16] * 3)
    time.sleep(0.05)
    assert len(source.sizes) == 3
    assert ahead.position == 1  # that of the consumer, however far the threads are
    next(ahead)
    assert eventually(lambda: source.sizes == [16] * 4)
    ahead.close()


def test_a_fetch_that_hangs_ends_in_an_error_and_does_not_block_close():
    hanging = threading.Event()

    class Hanging(Encoded):
        def read(self, rows):
            hanging.wait(WAIT_S)
            return super().read(rows)

    ahead = pipeline(Hanging(), timeout_s=0.05)
    with pytest.raises(DataError, match=r"batch 0 was not read within 0.05 s; .* increase train.timeout_s"):
        next(ahead)
    hanging.set()
    ahead.close()


def test_close_ends_the_threads_and_the_next_batch_starts_new_ones():
    ahead, plain = pipeline(decoders=3), loader()
    ahead.close()  # nothing has begun
    assert same(next(ahead), next(plain))
    assert len(threads_alive()) == 3
    ahead.close()
    assert not threads_alive()
    assert same(next(ahead), next(plain))
    ahead.close()


def test_several_streams_are_joined_in_one_batch():
    plain = [loader(seed=seed) for seed in (1, 2)]
    ahead = [pipeline(seed=1), loader(seed=2)]
    for _ in range(5):
        batch = next_joint_batch(ahead)
        assert same(batch, next_joint_batch(plain)) and (batch.rows.count, batch.rows.total) == (32, 16)
    assert [stream.position for stream in ahead] == [5, 5]
    ahead[0].close()


class CopyToNowhere:
    """Stands in for the copy to a device: holds one batch."""

    def __init__(self):
        self.started, self.held = [], {}

    def start(self, position, tensors):
        self.started.append(position)
        self.held = {position: tensors}

    def finish(self, position):
        held, self.held = self.held, {}
        return held.get(position)


def test_next_batch_is_copied_while_the_consumer_computes():
    ahead, plain = pipeline(), loader()
    ahead._device_copy = copy = CopyToNowhere()
    for position in (0, 1, 2, 3, 30, 31, 4):  # resumed, rewound
        ahead.position = plain.position = position
        assert same(next(ahead), next(plain))
        assert ahead.position == position + 1
        assert eventually(lambda: ahead.statistics().num_ready == 4)  # so that the next call copies
    assert copy.started and all(position in (1, 2, 3, 4, 31, 32, 5) for position in copy.started)
    ahead.close()


def test_copy_is_dropped_when_another_batch_is_fetched(monkeypatch):
    monkeypatch.setattr(torch, "Stream", lambda device: nullcontext())
    copy = DeviceCopy(torch.device("cpu"))
    copy.start(5, {"image": torch.zeros(2)})
    assert copy.finish(30) is None
    assert copy.finish(5) is None  # rewound: its batch is fetched again
