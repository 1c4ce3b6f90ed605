"""The prefetcher: the loader's batches, read ahead by threads."""

import gc
import random
import threading
import time
from contextlib import nullcontext

import pytest
import torch

from paragan.core.errors import DataError
from paragan.core.source import Source, image_specs
from paragan.loading.loader import Loader, next_joint_batch
from paragan.loading.pipeline import DeviceCopy, Pipeline

CPU = torch.device("cpu")
WAIT_S = 30.0


class Slow(Source):
    """Fifty images whose pixels are the row number; each fetch takes a random time."""

    class_names = ("even", "odd")
    fingerprint = "slow"

    def __init__(self, longest_s=0.004):
        self.tensors = image_specs((1, 2, 2), has_labels=True)
        self.longest_s = longest_s
        self.num_fetches = 0
        self.lock = threading.Lock()

    def __len__(self):
        return 50

    def fetch(self, indices, places=None, seed=0):
        with self.lock:
            self.num_fetches += 1
        time.sleep(random.random() * self.longest_s)
        rows = torch.as_tensor(indices)
        return {"image": rows.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 1, 2, 2), "label": rows % 2}


def loader(source=None, seed=3):
    return Loader(source or Slow(), 8, seed, CPU, flip=True)


def prefetcher(depth=4, threads=2, source=None, timeout_s=WAIT_S, seed=3):
    return Pipeline(loader(source, seed), depth, 0, threads, timeout_s=timeout_s)


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


def test_a_set_position_continues_there():
    ahead, plain = prefetcher(), loader()
    for position in (0, 1, 2, 40, 41, 3, 4, 5, 4):  # resumed, rewound, repeated
        ahead.position = plain.position = position
        assert same(next(ahead), next(plain))
        assert ahead.position == position + 1
    ahead.close()


def test_no_more_batches_are_fetched_than_the_depth():
    source = Slow(longest_s=0)
    ahead = prefetcher(depth=3, threads=3, source=source)
    next(ahead)
    assert eventually(lambda: source.num_fetches == 3)
    time.sleep(0.05)
    assert source.num_fetches == 3
    assert ahead.position == 1  # that of the consumer, however far the threads are
    next(ahead)
    assert eventually(lambda: source.num_fetches == 4)
    ahead.close()


def test_a_fetch_that_hangs_ends_in_an_error_and_does_not_block_close():
    hanging = threading.Event()

    class Hanging(Slow):
        def fetch(self, indices, places=None, seed=0):
            hanging.wait(WAIT_S)
            return super().fetch(indices, places, seed)

    ahead = prefetcher(source=Hanging(), timeout_s=0.05)
    with pytest.raises(DataError, match=r"batch 0 was not read within 0.05 s; .* increase train.timeout_s"):
        next(ahead)
    hanging.set()
    ahead.close()


def test_close_ends_the_threads_and_the_next_batch_starts_new_ones():
    ahead, plain = prefetcher(threads=3), loader()
    ahead.close()  # nothing has begun
    assert same(next(ahead), next(plain))
    assert len(threads_alive()) == 3
    ahead.close()
    assert not threads_alive()
    assert same(next(ahead), next(plain))
    ahead.close()


def test_a_dropped_prefetcher_leaves_no_thread():
    ahead = prefetcher()
    next(ahead)
    del ahead  # the fixture looks for threads


def test_several_streams_are_joined_in_one_batch():
    plain = [loader(seed=seed) for seed in (1, 2)]
    ahead = [prefetcher(seed=1), loader(seed=2)]
    for _ in range(5):
        batch = next_joint_batch(ahead)
        assert same(batch, next_joint_batch(plain)) and (batch.rows.count, batch.rows.total) == (16, 8)
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
    ahead, plain = prefetcher(depth=4, threads=2), loader()
    ahead._device_copy = copy = CopyToNowhere()
    for position in (0, 1, 2, 3, 30, 31, 4):  # resumed, rewound
        ahead.position = plain.position = position
        assert same(next(ahead), next(plain))
        assert ahead.position == position + 1
        assert eventually(lambda p=position: ahead._stages.has(p + 1) or p + 1 in copy.started)
    assert copy.started and all(position in (1, 2, 3, 4, 31, 32, 5) for position in copy.started)
    ahead.close()


def test_copy_is_dropped_when_another_batch_is_fetched(monkeypatch):
    monkeypatch.setattr(torch, "Stream", lambda device: nullcontext())
    copy = DeviceCopy(torch.device("cpu"))
    copy.start(5, {"image": torch.zeros(2)})
    assert copy.finish(30) is None
    assert copy.finish(5) is None  # rewound: its batch is fetched again
