"""Copy of the next batch to the device, on a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class DeviceCopy:
    """The copy of one batch from pinned memory, which overlaps with computation on the device."""

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
