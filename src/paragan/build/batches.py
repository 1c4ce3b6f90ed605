"""Batches of a run: read by this process, by threads or by processes, or row numbers alone."""

from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles
from paragan.core.source import Source, StreamedSource
from paragan.core.types import Side
from paragan.loading.loader import BatchRows, BatchStream, Loader
from paragan.loading.pipeline import Pipeline

_MAX_THREADS = 4  # enough for the training speed of most games
_MAX_READERS = 64  # of all ranks of a host, while storage is slow to respond
_MAX_BYTES = 1 << 30  # of files and batches read ahead; with a controller: of all ranks of a host


def batch_stream(
    config: RunConfig,
    source: Source,
    seed: int,
    device: torch.device,
    share: tuple[int, int] | None = None,
    flip: bool = False,
    *,
    world: World = ALONE,
) -> BatchStream:
    """Return the batches of a run, made ahead as set by `loading`.

    world: the ranks that read data, and share the memory and the readers of a host.
    """
    labels_N = _labels_to_balance(config, source)
    if isinstance(source, StreamedSource):
        from paragan.loading.iterable_stream import IterableStream

        stream = IterableStream(source, config.train.batch, device, share)
        stream.timeout_s = config.train.timeout_s
        return stream
    loader = Loader(source, config.train.batch, seed, device, share=share, flip=flip, balanced_by=labels_N)
    make = _made_by_processes if source.is_read_by_processes else _made_by_threads
    return make(config, loader, world)


def _made_by_processes(config: RunConfig, loader: Loader, world: World) -> BatchStream:
    from paragan.loading.process_batches import ProcessBatches

    depth = config.loading.prefetch
    loader.timeout_s = config.train.timeout_s  # of reading in this process, if no others read ahead
    if depth == 0:
        return loader
    wanted = config.loading.threads or (_MAX_THREADS if depth else None)  # None: by the time that a sample takes
    num_on_host = loader.source.num_processes(wanted)
    num = -(-num_on_host // world.local_size)
    ahead = depth if isinstance(depth, int) else 2 * num
    return ProcessBatches(loader, num, ahead, config.train.timeout_s) if num else loader


def _made_by_threads(config: RunConfig, loader: Loader, world: World) -> BatchStream:
    options = config.loading
    threads = options.threads or min(_MAX_THREADS, torch.get_num_threads())
    depth = _batches_ahead(config, loader.source, threads)
    if depth == 0:
        return loader
    new_pipeline = partial(Pipeline, loader=loader, timeout_s=config.train.timeout_s)
    if depth != "auto":
        return new_pipeline(depth=depth, readers=options.readers, decoders=min(threads, depth), max_bytes=_MAX_BYTES)
    # a controller changes the numbers, within this rank's share of the host's memory and readers
    max_readers = max(1, _MAX_READERS // world.local_size)
    readers = min(options.readers or threads, _MAX_THREADS, max_readers)
    max_bytes = _MAX_BYTES // world.local_size
    return new_pipeline(depth="auto", readers=readers, decoders=threads, max_bytes=max_bytes, max_readers=max_readers)


def _batches_ahead(config: RunConfig, source: Source, threads: int) -> int | Literal["auto"]:
    """Return how many batches threads read ahead; "auto": a controller decides.

    | `loading.prefetch`         | number     | auto | null        |
    |----------------------------|------------|------|-------------|
    | tensors in memory          | the number | 0    | 0           |
    | files of this host         | the number | auto | threads + 1 |
    | files at an address (URL)  | the number | auto | auto        |
    """
    depth = config.loading.prefetch
    if isinstance(depth, int):
        return depth
    if not source.is_decoded:
        return 0
    is_remote = "://" in str(vars(config.data.options).get("path", ""))
    return "auto" if depth == "auto" or is_remote else threads + 1


def _labels_to_balance(config: RunConfig, source: Source) -> NDArray[np.int64] | None:
    """Return the labels of all samples if batches hold equally many of each class."""
    if config.data.options.balance == "none":
        return None
    if (labels_N := source.row_labels()) is None:
        raise ConfigError("data.balance=classes needs labels that are known before the data is read; use none")
    return labels_N


def batches(config: RunConfig, data: Data, device: torch.device, roles: Roles, g_reads: bool = False) -> BatchStream:
    """Return the batches of D's updates, or only their rows if no turn of this rank needs more.

    g_reads: whether G's turns need the tensors, also on ranks without D.
    """
    share = roles.batch_world.share(config.train.batch)
    all_read = g_reads or roles.sends_states  # players that take turns train on real samples, extra ones too
    sides = roles.trained_sides  # none on a server, whose other ranks are its batch world
    if not sides or not (all_read or Side.D in sides):
        return BatchRows(data.train, config.train.batch, share)
    world = roles.world if all_read and not roles.has_server else roles.batch_world
    return batch_stream(config, data.train, config.seed, device, share, data.flip, world=world)
