"""Batches of a run: read by this process, by threads or by processes, or row numbers alone."""

from functools import partial

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
    is_automatic: bool = True,
    *,
    world: World = ALONE,
) -> BatchStream:
    """Return the batches of a run, made ahead as set by `loading`.

    is_automatic: whether decoded data is read ahead if `loading.prefetch` is null. world: the ranks
    that share the resources of a host.
    """
    labels_N = _labels_to_balance(config, source)
    if isinstance(source, StreamedSource):
        from paragan.loading.iterable_stream import IterableStream

        stream = IterableStream(source, config.train.batch, device, share)
        stream.timeout_s = config.train.timeout_s
        return stream
    loader = Loader(source, config.train.batch, seed, device, share=share, flip=flip, balanced_by=labels_N)
    make = _made_by_processes if source.is_read_by_processes else _made_by_threads
    return make(config, loader, is_automatic, world)


def _made_by_processes(config: RunConfig, loader: Loader, is_automatic: bool, world: World) -> BatchStream:
    from paragan.loading.process_batches import ProcessBatches

    depth = config.loading.prefetch
    loader.timeout_s = config.train.timeout_s  # where this process reads
    if depth == 0 or (depth is None and not is_automatic):
        return loader
    num_on_host = loader.source.num_processes(config.loading.threads or (_MAX_THREADS if depth else None))
    num = -(-num_on_host // world.local_size)
    ahead = depth if isinstance(depth, int) else 2 * num
    return ProcessBatches(loader, num, ahead, config.train.timeout_s) if num else loader


def _made_by_threads(config: RunConfig, loader: Loader, is_automatic: bool, world: World) -> BatchStream:
    options = config.loading
    is_decoded = loader.source.is_decoded
    threads = options.threads or min(_MAX_THREADS, torch.get_num_threads())
    depth = options.prefetch
    if depth is None and is_automatic and is_decoded:
        is_remote = "://" in str(vars(config.data.options).get("path", ""))
        depth = "auto" if is_remote else threads + 1
    if not depth or (depth == "auto" and not is_decoded):
        return loader
    new_pipeline = partial(Pipeline, loader=loader, timeout_s=config.train.timeout_s)
    if depth != "auto":
        return new_pipeline(depth=depth, readers=options.readers, decoders=min(threads, depth), max_bytes=_MAX_BYTES)
    # a controller changes the numbers, within this rank's share of the host's memory and readers
    max_readers = max(1, _MAX_READERS // world.local_size)
    readers = min(options.readers or threads, _MAX_THREADS, max_readers)
    max_bytes = _MAX_BYTES // world.local_size
    return new_pipeline(depth="auto", readers=readers, decoders=threads, max_bytes=max_bytes, max_readers=max_readers)


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
    g_reads = g_reads or roles.sends_states
    if Side.D in roles.trained_sides or (g_reads and roles.trained_sides):
        world = roles.world if g_reads and not roles.has_server else roles.batch_world
        return batch_stream(config, data.train, config.seed, device, share, data.flip, world=world)
    return BatchRows(data.train, config.train.batch, share)
