"""Players on ranks of their own: G and D train at the same time, or any number of players take turns.

| chosen by `Scheme`, below                  | what runs in one process  | on separate ranks |
|--------------------------------------------|---------------------------|-------------------|
| `PlayersAtOnce`                            | `ThreadStep`: two threads | `RankStep`        |
| `PlayersInTurns`: staleness 0, not `reuse` | `synchronous`: no session | `TurnStep`        |

A `…Step` is a session: it makes all steps of one game on this rank. `ThreadStep` and `RankStep` have the same parts,
`GeneratorStep` and `DiscriminatorStep` (`two_players`), each in a thread or on a rank, and differ in the links between.
Sources: the ParaGAN poster and arXiv 2411.03999 ("asynchronous"); bounded staleness: Ho et al. 2013.
"""

from dataclasses import dataclass, field
from typing import Literal

from paragan.core.option_types import Count, FilePath, Fraction, Natural, NotNegative, Positive
from paragan.schemes.asynchronous.players_at_once import PlayersAtOnce
from paragan.schemes.asynchronous.players_in_turns import PlayersInTurns


@dataclass(frozen=True, kw_only=True)
class Options:
    """Ranks of each player, and how far G and D may be apart (docs/how-to/machines/asynchronous.md)."""

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


_DEFAULTS = Options()


def Scheme(options: Options = _DEFAULTS) -> PlayersAtOnce | PlayersInTurns:
    """Return the scheme for these options: players that take turns, or that train at the same time."""
    # the only place that chooses: without delay and with separate images for D the order is that of `synchronous`
    if options.staleness == 0 and not options.reuse:
        return PlayersInTurns(options)
    return PlayersAtOnce(options)
