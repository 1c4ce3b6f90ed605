"""A labelled data set without its labels: what `data.labels=false` trains on."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paragan.core.protocols import Source


class UnlabelledSource:
    """The images of `source`, which has its labels still."""

    class_names: tuple[str, ...] = ()

    def __init__(self, source: Source) -> None:
        self.source, self.shape = source, source.shape
        self.fingerprint = f"{source.fingerprint} without labels"

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """uint8 x_BCHW and no labels."""
        return self.source.fetch(indices)[0], None
