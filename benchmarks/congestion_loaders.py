"""Loaders of `benchmarks.congestion`, taken by a timed consumer; rate, stalls, memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.congestion_shards import NUM_SHARDS, decode, read_index, read_sample
from paragan.core.source import EncodedSource, TensorSpec
from paragan.loading import TensorBatches


class ProxySource(EncodedSource):
    """Samples behind the proxy, for `paragan.loading`."""

    fingerprint = "proxy"

    def __init__(self, url: str) -> None:
        self._url = url
        self._places = read_index(url)
        height = decode(read_sample(url, self._places[0])).shape[1]
        self.tensors = {"image": TensorSpec((3, height, height), torch.uint8)}

    def __len__(self) -> int:
        return len(self._places)

    def read(self, rows: Any) -> list[bytes]:
        return [read_sample(self._url, self._places[row]) for row in rows]

    def decode(self, encoded: Any, rows: Any, places: Any = None, seed: int = 0) -> dict[str, torch.Tensor]:
        return {"image": torch.stack([decode(data) for data in encoded])}


class ProxyDataset(Dataset):
    """The same samples, for torch's loaders."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._places = read_index(url)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: int) -> torch.Tensor:
        return decode(read_sample(self._url, self._places[row]))


def batches(asked: dict[str, Any]) -> tuple[Iterator[Any], TensorBatches | None]:
    """Return endless batches of a loader, and the one that has statistics."""
    url, batch = asked["url"], asked["batch"]
    if asked["loader"] == "paragan":
        sizes = {"depth": "auto", "readers": 2}
        if "readers" in asked:
            sizes = {"depth": asked["depth"], "readers": asked["readers"]}
        stream = TensorBatches(ProxySource(url), batch, decoders=2, max_bytes=asked["max_mb"] << 20, **sizes)
        return stream, stream
    if asked["loader"] == "webdataset":
        import webdataset

        urls = [f"{url}/shard-{shard}.tar" for shard in range(NUM_SHARDS)] * 4
        data = webdataset.WebDataset(urls, shardshuffle=100, nodesplitter=None, empty_check=False)
        data = data.shuffle(500).to_tuple("jpg").map(lambda sample: decode(sample[0])).repeat()
        workers = min(asked["workers"], len(urls))
        return iter(DataLoader(data, batch, num_workers=workers)), None
    kind = DataLoader
    if asked["loader"] == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        kind = StatefulDataLoader
    data = ProxyDataset(url)
    loader = kind(data, batch, True, num_workers=asked["workers"], persistent_workers=True, drop_last=True)
    return endless(loader), None


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def memory_mb() -> float:
    """Proportional set size of this process and its children."""
    pids = [os.getpid()]
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            pids += [int(pid) for pid in (task / "children").read_text().split()]
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total / 1024


class Sampler(threading.Thread):
    """Peak of the memory, and sizes of the pipeline over time."""

    def __init__(self, stream: TensorBatches | None) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.is_ended = threading.Event()
        self.peak_mb = 0.0
        self.peak_held_mb = 0.0
        self.sizes: list[tuple[float, int, int]] = []
        self.began = time.monotonic()

    def run(self) -> None:
        number = 0
        while not self.is_ended.wait(0.05):
            number += 1
            if number % 20 == 0:
                self.peak_mb = max(self.peak_mb, memory_mb())
            if self.stream is not None:
                found = self.stream.statistics()
                self.peak_held_mb = max(self.peak_held_mb, found.bytes_held / 2**20)
                sizes = (found.readers, found.depth)
                if not self.sizes or self.sizes[-1][1:] != sizes:
                    self.sizes.append((round(time.monotonic() - self.began, 2), *sizes))


def consume(asked: dict[str, Any], restart: Callable[[], None]) -> dict[str, Any]:
    """Take batches for some seconds, after `restart` has begun a period of the proxy."""
    before_mb = memory_mb()
    stream, measured = batches(asked)
    for _ in range(4):  # threads and processes have started
        next(stream)
    sampler = Sampler(measured)
    restart()
    sampler.start()
    began = time.monotonic()
    waits = []
    while time.monotonic() - began < asked["seconds"]:
        before_s = time.monotonic()
        next(stream)
        waits.append(time.monotonic() - before_s)
        time.sleep(asked["step_s"])
    seconds = time.monotonic() - began
    sampler.is_ended.set()
    sampler.join()
    found = {
        "images_per_s": len(waits) * asked["batch"] / seconds,
        "stalls": sum(waits) / seconds,
        "longest_wait_s": max(waits),
        "memory_mb": sampler.peak_mb - before_mb,
    }
    if measured is not None:
        measured.close()
        found |= {"peak_held_mb": sampler.peak_held_mb, "sizes": sampler.sizes}
    return found
