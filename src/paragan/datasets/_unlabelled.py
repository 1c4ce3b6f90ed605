"""Wrapper that drops the labels of a data set, for `data.labels=false`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paragan.core.source import Source


class UnlabelledSource(Source):
    """A `Source` of the images of another source, without labels."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tensors = {name: spec for name, spec in source.tensors.items() if name != "label"}
        self.notices = source.notices
        self.is_decoded = source.is_decoded
        self.fingerprint = f"{source.fingerprint} without labels"

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return the tensors of the source except `label`."""
        fetched = self.source.fetch(indices, places, seed)
        return {name: tensor for name, tensor in fetched.items() if name != "label"}
