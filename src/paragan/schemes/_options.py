"""Options of schemes with several files, read without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paragan.core.option_types import Count, FilePath, Fraction, Natural, NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class AsynchronousOptions:
    """Ranks of each player, and how far G and D may be apart (docs/asynchronous.md)."""

    staleness: Natural = 1
    """Steps that the D which G trains against may lag behind; 0 with `reuse` false: players take turns."""
    reuse: bool = True
    """Train D on the images of G's turns instead of generating others."""
    ranks: dict[str, Count] = field(default_factory=dict)
    """Number of ranks of each player by name, G first: {g: 1, d: 1, fake_score: 2}; empty: half of them train
    G, the others D."""
    g_batch: Count | None = None
    """Images of G's turn over all its ranks; null: as many as D's."""
    cached: Fraction = 0.0
    """Share of D's fakes drawn from those of G's last 8 updates, of every class equally many."""
    predict: NotNegative = 0.0
    """Times D's last change that is added to its weights where G trains against an earlier D.

    1 is the prediction step of Yadav et al. 2018.
    """
    fall_back: Positive | None = 50.0
    """`staleness` becomes 0 if gradients exceed this many times their usual size; null: never."""
    state_dtype: Literal["exact", "bf16"] = "exact"
    """D's state: `exact`, or as differences in bfloat16, whose rounding errors do not accumulate."""
    fakes_dtype: Literal["exact", "bf16"] = "exact"
    """Images sent to D: `exact`, or rounded to bfloat16; labels and other tensors are exact."""
    placement: Literal["blocks", "paired"] = "blocks"
    """Ranks of each player: consecutive, or spread evenly, so that each host has ranks of all."""
    order: FilePath | None = None
    """Run folder whose recorded order of updates is repeated (`paragan replay`)."""

    @property
    def takes_turns(self) -> bool:
        """Whether the players take turns as in `synchronous`, instead of training at the same time."""
        return self.staleness == 0 and not self.reuse
