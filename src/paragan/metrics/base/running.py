"""Base class of metrics that hold sums over images, or rows of them."""

from dataclasses import replace
from typing import Any, ClassVar, Self

import torch

from paragan.core.metric import Metric


class RunningMetric(Metric):
    """A frozen dataclass whose fields `added` and `joined` grow with the images that it includes.

    added: sums and numbers, or anything with `+`. joined: tensors with a row for each image.
    """

    added: ClassVar[tuple[str, ...]] = ()
    joined: ClassVar[tuple[str, ...]] = ()

    def including(self, **values: Any) -> Self:
        """Return a metric that includes images with these values of its fields `added` and `joined`."""
        sums = {name: getattr(self, name) + values[name] for name in self.added}
        rows = {name: torch.cat([getattr(self, name), values[name]]) for name in self.joined}
        return replace(self, **sums, **rows)  # type: ignore[type-var]  # subclasses are dataclasses

    def merge(self, other: Self) -> Self:
        """Return a metric that includes the images of both."""
        return self.including(**{name: getattr(other, name) for name in (*self.added, *self.joined)})
