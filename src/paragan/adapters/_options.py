"""Settings of every adapter. Read with a config, so this file does not import torch."""

from dataclasses import dataclass

from paragan.core.option_types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """Weights with an adapter."""

    match: tuple[str, ...] = ()
    """Patterns over names of weights, such as "*.conv?.weight"; none: all of linear layers and
    convolutions."""


@dataclass(frozen=True, kw_only=True)
class LowRankOptions(AdapterOptions):
    """Rank and scale of products of two matrices."""

    rank: Count = 4
    """Rank of the trained matrices, at most the smaller side of the weight."""
    alpha: Positive | None = None
    """The change of the weight is multiplied by alpha / rank; null: by 1."""

    @property
    def scale(self) -> float:
        """Factor on the change of the weight."""
        return 1.0 if self.alpha is None else self.alpha / self.rank
