"""Batches of named tensors for any training loop, which resume exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.loading.control_law import LoadingStatistics
from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline

_STATE = {"epoch": int, "position": int, "seed": int, "fingerprint": str}


class TensorBatches(Iterator[dict[str, Tensor]]):
    """Endless batches of a source: tensors by name, on a device, made ahead of the loop by threads.

    The order is a permutation of the samples per epoch, drawn from `seed`. It depends on nothing
    else: neither on the number of ranks nor on `depth`, `readers` or `decoders`, all of which may differ
    after a resume. Images are float32 in [-1, 1].

    batch: samples of all ranks together; rank `rank` of `world_size` yields its part, of at least
    one sample. flip: mirror half of the images. readers: threads that only read; 0: the decoders
    read. depth: batches ahead; "auto": a controller changes it, `readers` (up to `max_readers`) and
    `decoders` by the latency of storage. max_bytes: memory of encoded samples and batches. Raises
    `ConfigError` if the batch is too small, `DataError` from `next` for damaged samples.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
        flip: bool = False,
        depth: int | Literal["auto"] = 4,
        readers: int = 0,
        decoders: int = 2,
        max_bytes: int = 1 << 30,
        max_readers: int = 64,
        timeout_s: float = 300.0,
    ) -> None:
        self.source = source
        self._batch = batch
        self._seed = seed
        if not 0 <= rank < world_size <= batch:
            raise ConfigError(
                f"batch={batch}, rank={rank}, world_size={world_size}: expected 0 <= rank < world_size <= batch; "
                "batch counts the samples of all ranks"
            )
        rows = Rows(step=0, first=0, count=batch, total=batch).shares(world_size)[rank]
        loader = Loader(source, batch, seed, torch.device(device), share=(rows.first, rows.count), flip=flip)
        self._pipeline = Pipeline(
            loader, depth, readers, decoders, max_bytes=max_bytes, timeout_s=timeout_s, max_readers=max_readers
        )

    def __next__(self) -> dict[str, Tensor]:
        return dict(next(self._pipeline).tensors)

    def __enter__(self) -> TensorBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; the next batch starts new ones."""
        self._pipeline.close()

    def state_dict(self) -> dict[str, Any]:
        """Return epoch and position, in samples, of the next batch, equal on all ranks; seed and fingerprint."""
        epoch, position = divmod(self._pipeline.position * self._batch, len(self.source))
        return {"epoch": epoch, "position": position, "seed": self._seed, "fingerprint": self.source.fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken, on any number of ranks and with any threads.

        Raises `ConfigError` for another seed, an invalid state or a batch that does not divide the
        samples so far, `DataError` for other data.
        """
        if {key: type(value) for key, value in state.items()} != _STATE or min(state["epoch"], state["position"]) < 0:
            raise ConfigError(f"state: expected {', '.join(_STATE)}, found {dict(state)!r}; pass a `state_dict()`")
        if state["seed"] != self._seed:
            raise ConfigError(
                f"state: seed {state['seed']}, but the batches have seed={self._seed}; use seed={state['seed']}"
            )
        if state["fingerprint"] != self.source.fingerprint:
            raise DataError(
                f"state: it was taken on other data ({state['fingerprint']}, found {self.source.fingerprint}); "
                "open the same data with the same options"
            )
        samples = state["epoch"] * len(self.source) + state["position"]
        if samples % self._batch:
            raise ConfigError(
                f"state: {samples:,} samples were read, no multiple of batch={self._batch}; use the former batch"
            )
        self._pipeline.position = samples // self._batch

    def resize(self, depth: int, readers: int, decoders: int) -> None:
        """Change the limits, also while threads work."""
        self._pipeline.resize(depth, readers, decoders)

    def statistics(self) -> LoadingStatistics:
        """Return limits, latencies of reads, waits, lengths of queues and bytes held."""
        return self._pipeline.statistics()


def open_images(
    path: str | Path, size: int = 64, split: Literal["train", "held_out"] = "train", **options: Any
) -> Source:
    """Open images as a source: a folder, .zip or .tar file, or shards of `data prepare`, also at an address.

    size: height and width. options: those of data set `folder` or `shards`, such as `channels`,
    `crop` and `held_out`, the share that `split` "train" leaves out.
    """
    from paragan.storage.shard_folder import has_shards  # a plain run reads no store

    module = registry.load_module("datasets", "shards" if has_shards(str(path)) else "folder")
    source: Source = module.source(module.Options(path=str(path), size=size, **options), split)
    return source
