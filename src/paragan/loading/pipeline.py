"""Pipeline: the batches of a loader, read, decoded and copied ahead of the consumer."""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from paragan.core.types import Batch
from paragan.loading.control_law import PERIOD_S, ControlLaw, Decision, LoadingStatistics, Reason, Sizes
from paragan.loading.loader import BatchStream, Loader
from paragan.loading.stages import Stages

_JOIN_S = 5.0
_MAX_DECISIONS = 1000
_CONTROLLED_BYTES = 1 << 30  # default limit
_CONTROLLED_PARTS = 16  # of a batch: short reads show congestion early


class Pipeline(BatchStream):
    """Batches of a loader, made by threads at most `depth` batches ahead of the consumer.

    Batches and order are those of the loader: a batch depends on its position only. `position` is that of the next
    batch; setting it drops the batches of other positions. An error is raised at its batch; the next call reads it
    again. The threads start at the first batch and end with `close`, or when the pipeline is deleted.

    depth: "auto": a controller resizes the pipeline by the latency of storage. readers: threads that wait for
    storage; 0: the decoders read, too. decoders: threads that decode and flip. With a controller these are the
    least, and `max_readers` is the limit. max_bytes: memory of encoded samples and batches, at most; the next
    batch is made even if it needs more. timeout_s: raises `DataError` if a batch takes longer.
    """

    def __init__(
        self,
        loader: Loader,
        depth: int | Literal["auto"],
        readers: int,
        decoders: int,
        max_bytes: int | None = None,
        timeout_s: float = 300.0,
        *,
        max_readers: int = 64,
    ) -> None:
        super().__init__(loader.source, loader.rows, loader.device, loader.dtype)
        self._loader = loader
        self._is_controlled = depth == "auto"
        if depth == "auto":  # readers apart from decoders can be resized; one more batch, for the consumer
            readers = readers or decoders
            depth = readers + 1
        self._sizes = Sizes(depth, readers, decoders)
        self._max_readers = max_readers
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._stages: Stages | None = None
        self._end_stages: Callable[[], object] = lambda: None  # set with `_stages`
        self._controller: Controller | None = None
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
            self._stages = self._start()
        return self._stages.take(self.position, self._timeout_s)

    def _start(self) -> Stages:
        max_parts = _CONTROLLED_PARTS if self._is_controlled else max(self._sizes.readers, self._sizes.decoders)
        stages = Stages(self._loader, max_parts, self._max_bytes)
        stages.resize(self._sizes)
        self._end_stages = weakref.finalize(self, stages.end)
        if self._is_controlled:
            law = ControlLaw(
                self._sizes,
                max_readers=self._max_readers,
                max_decoders=max(self._sizes.decoders, torch.get_num_threads()),
                memory_bytes=_CONTROLLED_BYTES if self._max_bytes is None else self._max_bytes,
            )
            self._controller = Controller(stages, law)
        return stages

    def resize(self, depth: int, readers: int, decoders: int) -> None:
        """Change the limits, also while threads work; superfluous threads end after their part."""
        self._sizes = Sizes(depth, readers, decoders)
        if self._stages is not None:
            self._stages.resize(self._sizes)

    def statistics(self) -> LoadingStatistics:
        """Return limits, latencies, waits, lengths of queues and bytes held; the call takes some microseconds."""
        if self._stages is not None:
            return self._stages.statistics()
        return LoadingStatistics(**self._sizes._asdict(), max_bytes=self._max_bytes)

    def loading_values(self, with_newest: bool) -> list[dict[str, Any]]:
        return self._controller.values(with_newest) if self._controller is not None else []

    def close(self) -> None:
        """End the threads, or abandon them after a timeout; the next batch starts new ones."""
        if self._stages is not None:
            self._end_stages()
            self._stages.join(_JOIN_S)
            self._stages = None
        if self._controller is not None:
            self._controller.thread.join(_JOIN_S)
            self._controller = None


class DeviceCopy:
    """The copy of the next batch from pinned memory, on a stream of its own: it overlaps with computation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)
        self._copied: tuple[int, dict[str, Tensor]] | None = None  # and their position

    def start(self, position: int, tensors: Mapping[str, Tensor]) -> None:
        """Start to copy the pinned tensors of the batch of a position."""
        with self._stream:
            copied = {name: tensor.to(self._device, non_blocking=True) for name, tensor in tensors.items()}
        self._copied = (position, copied)

    def finish(self, position: int) -> dict[str, Tensor] | None:
        """Return the copied tensors of a position, or None if another was copied.

        The current stream of the device waits for them; this thread does not.
        """
        copied_position, copied = self._copied or (None, {})
        self._copied = None
        if position != copied_position:
            return None
        current = torch.accelerator.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in copied.values():
            tensor.record_stream(current)  # or its memory would be reused while it is read
        return copied


class Controller:
    """A thread that resizes the stages of a pipeline four times a second, until these end.

    An error in it is printed and ends it alone: the pipeline continues with the sizes so far.
    """

    def __init__(self, stages: Stages, law: ControlLaw) -> None:
        self._newest: Decision | None = None
        self._changes: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self._stages = stages
        self._law = law
        self.thread = threading.Thread(target=self._work, name="loading controller", daemon=True)
        self.thread.start()

    def values(self, with_newest: bool) -> list[dict[str, Any]]:
        """Return the changes since the last call, oldest first, and what was measured last, as values of events."""
        changes = [self._changes.popleft() for _ in range(len(self._changes))]
        newest = [replace(self._newest, reason=Reason.NONE)] if with_newest and self._newest else []
        return [decision.values for decision in changes + newest]

    def _work(self) -> None:
        while not self._stages.wait_for_end(PERIOD_S):
            self._newest = self._law.update(self._stages.statistics())
            if self._newest.reason:
                self._stages.resize(self._newest.sizes)
                self._changes.append(self._newest)
