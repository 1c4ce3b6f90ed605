"""What a simulation needs to know of a game: its profile, scheme, and what its ranks exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paragan.core.exchange import RankExchange
from paragan.core.types import Side
from paragan.game.scheme import Scheme
from paragan.scaling.profile import RunProfile

Exchanges = Callable[[int, bool], Sequence[RankExchange]]


@dataclass(frozen=True)
class GameCosts:
    """What is simulated. exchanges: of each side's strategy; see `Strategy.exchanges`.

    batch: of D, over all its ranks; g_batch: of G's turn; None: as many. spans_norms: whether
    statistics of batch norm span the ranks of a side.
    """

    profile: RunProfile
    scheme: Scheme
    exchanges: Mapping[Side, Exchanges]
    batch: int
    g_batch: int | None = None
    spans_norms: Mapping[Side, bool] = field(default_factory=lambda: dict.fromkeys(Side, True))
