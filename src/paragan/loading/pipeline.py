"""Pipeline: the batches of a loader, read, decoded and copied ahead of the consumer."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paragan.core.types import Batch
from paragan.loading.control_law import PERIOD_S, ControlLaw, Counters, Decision, Limits, Sizes
from paragan.loading.loader import BatchStream, Loader
from paragan.loading.stage_size import Reason
from paragan.loading.stage_threads import LoadingStatistics
from paragan.loading.stages import Stages

_JOIN_S = 5.0
_MAX_DECISIONS = 1000
_CONTROLLED_BYTES = 1 << 30
_CONTROLLED_PARTS = 16  # of a batch: short reads show congestion early


class Pipeline(BatchStream):
    """Batches of a loader, made by threads at most `depth` batches ahead of the consumer.

    Batches and order are those of the loader: a batch depends on its position only. `position` is
    that of the next batch; setting it drops the batches of other positions. An error is raised at
    its batch; the next call reads it again. The threads start at the first batch and end with
    `close`, or when the pipeline is deleted.

    readers: threads that wait for storage; 0: the decoders read, too. decoders: threads that decode
    and flip. max_bytes: memory of encoded samples and batches, at most; the next batch is made even
    if it needs more. timeout_s: raises `DataError` if a batch takes longer.
    max_readers: of a controller, which resizes the pipeline from these limits; None: they are fixed.
    """

    def __init__(
        self,
        loader: Loader,
        depth: int,
        readers: int,
        decoders: int,
        max_bytes: int | None = None,
        timeout_s: float = 300.0,
        *,
        max_readers: int | None = None,
    ) -> None:
        super().__init__(loader.source)
        self._max_readers = max_readers
        self._controller: Controller | None = None
        self._min_limits = (depth, readers, decoders)
        self._loader = loader
        self._limits = (depth, readers, decoders)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._stages: Stages | None = None
        self._device_copy = DeviceCopy(loader.device) if loader.is_pinned else None

    def __next__(self) -> Batch:
        batch = super().__next__()
        if self._device_copy is not None and self._stages is not None and self._stages.has(self.position):
            self._device_copy.start(self.position, self._stages.take(self.position, self._timeout_s))
        return batch

    def fetch_next(self) -> dict[str, Tensor]:
        if self._device_copy is not None and (copied := self._device_copy.finish(self.position)) is not None:
            return copied
        if self._stages is None:
            _, readers, decoders = self._limits
            max_parts = max(readers, decoders) if self._max_readers is None else _CONTROLLED_PARTS
            self._stages = Stages(self._loader, max_parts, self._max_bytes)
            self._end_stages = weakref.finalize(self, self._stages.end)
            self._stages.resize(*self._limits)
            if self._max_readers is not None:
                max_decoders = max(self._limits[2], torch.get_num_threads())
                memory = _CONTROLLED_BYTES if self._max_bytes is None else self._max_bytes
                limits = Limits(Sizes(*self._limits), self._max_readers, max_decoders, memory)
                self._controller = Controller(self, limits)
        return self._stages.take(self.position, self._timeout_s)

    def to_batch(self, tensors: dict[str, Tensor], position: int, num_streams: int = 1) -> Batch:
        return self._loader.to_batch(tensors, position, num_streams)

    def resize(self, depth: int, readers: int, decoders: int) -> None:
        """Change the limits, also while threads work; superfluous threads end after their part."""
        self._limits = (depth, readers, decoders)
        if self._stages is not None:
            self._stages.resize(*self._limits)

    def statistics(self) -> LoadingStatistics:
        """Return limits, latencies, waits, lengths of queues and bytes held; some microseconds."""
        if self._stages is not None:
            return self._stages.statistics()
        depth, readers, decoders = self._limits
        return LoadingStatistics(depth=depth, readers=readers, decoders=decoders, max_bytes=self._max_bytes)

    def counters(self) -> Counters:
        """Return the sums that the controller reads."""
        return self._stages.counters() if self._stages is not None else Counters(time_s=time.monotonic())

    def loading_values(self, with_newest: bool) -> list[dict[str, Any]]:
        return self._controller.values(with_newest) if self._controller is not None else []

    def close(self) -> None:
        """End the threads, or abandon them after a timeout; the next batch starts new ones."""
        if self._controller is not None:
            self._controller.end()
            self._controller = None
            self._limits = self._min_limits
        if self._stages is not None:
            self._end_stages()
            self._stages.join(_JOIN_S)
            self._stages = None


class DeviceCopy:
    """The copy of the next batch from pinned memory, on a stream of its own: it overlaps with computation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)
        self._position: int | None = None
        self._copied: dict[str, Tensor] = {}

    def start(self, position: int, tensors: Mapping[str, Tensor]) -> None:
        """Start to copy the pinned tensors of the batch of a position."""
        with self._stream:
            self._copied = {name: tensor.to(self._device, non_blocking=True) for name, tensor in tensors.items()}
        self._position = position

    def finish(self, position: int) -> dict[str, Tensor] | None:
        """Return the copied tensors of a position, or None if another was copied.

        The current stream of the device waits for them; this thread does not.
        """
        copied = self._copied
        copied_position = self._position
        self._copied = {}
        self._position = None
        if position != copied_position:
            return None
        current = torch.accelerator.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in copied.values():
            tensor.record_stream(current)  # or its memory would be reused while it is read
        return copied


class Controller:
    """Resize a pipeline four times a second, within limits. A deleted pipeline ends the thread."""

    def __init__(self, pipeline: Pipeline, limits: Limits) -> None:
        self.newest: Decision | None = None
        self._changes: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self._law = ControlLaw(limits.min_sizes)
        self._limits = limits
        self._pipeline = weakref.ref(pipeline)
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="loading controller", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def values(self, with_newest: bool) -> list[dict[str, Any]]:
        """Return the changes since the last call, oldest first, and what was measured last."""
        changes = [self._changes.popleft() for _ in range(len(self._changes))]
        newest = [replace(self.newest, reason=Reason.NONE)] if with_newest and self.newest else []
        return [decision_values(decision) for decision in changes + newest]

    def end(self) -> None:
        """End the thread."""
        self._is_ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _work(self) -> None:
        while not self._is_ended.wait(PERIOD_S):
            pipeline = self._pipeline()
            if pipeline is None:
                return
            self.update(pipeline)
            del pipeline  # so that it can be deleted

    def update(self, pipeline: Pipeline) -> None:
        """Decide once, and resize the pipeline if anything changes."""
        self.newest = self._law.update(pipeline.counters(), self._limits)
        if self.newest.reason:
            sizes = self.newest.sizes
            pipeline.resize(sizes.depth, sizes.readers, sizes.decoders)
            self._changes.append(self.newest)


def decision_values(decision: Decision) -> dict[str, Any]:
    """Return a decision as values of an event."""
    return {
        "depth": decision.sizes.depth,
        "readers": decision.sizes.readers,
        "decoders": decision.sizes.decoders,
        "read_ms": round(1000 * decision.latency_s, 2),
        "decode_ms": round(1000 * decision.decode_s, 2),
        "stalls": round(decision.wait, 4),
    } | ({"reason": str(decision.reason)} if decision.reason else {})
