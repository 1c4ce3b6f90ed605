"""Wrapper that drops the labels of a data set, for `data.labels=false`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paragan.core.protocols import Source


class UnlabelledSource:
    """A `Source` of the images of another source, without labels."""

    class_names: tuple[str, ...] = ()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.shape = source.shape
        self.fingerprint = f"{source.fingerprint} without labels"

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """Return uint8 x_BCHW and no labels."""
        return self.source.fetch(indices)[0], None
