"""Seconds of all ranks by phase, at log points, and ranks that are slower than the others."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paragan.core.phases import Phase, PhaseClock
from paragan.core.roles import Roles

_WORK = (Phase.DATA, Phase.D_TURN, Phase.G_TURN, Phase.OPTIMIZER)  # other phases wait for ranks
_MAX_RANKS = 16  # in the record
_SLOW = 1.5  # times the work of the others
_TIMES = 3  # log points in a row

Seconds = Mapping[Phase, float]


class PhaseLog:
    """Record of the seconds by phase since the last log point, over all ranks."""

    def __init__(self, clock: PhaseClock, roles: Roles) -> None:
        self._clock = clock
        self._roles = roles
        self._before = dict.fromkeys(Phase, 0.0)
        self._slow: Counter[int] = Counter()  # log points in a row, by rank

    def read(self, steps: int, at_the_end: bool = False) -> tuple[dict[str, Any], list[str]]:
        """Return the values of the `phases` event, and messages about stragglers. Collective.

        steps: since the last call. `wall_s` and `phase_s` (by phase) are lists over `ranks`: all, or those with the
        most work. `per_step`: means.
        """
        if not (steps or at_the_end):
            return {}, []
        self._clock.beat()  # the phase that lasts
        now = dict(self._clock.seconds)
        local = {phase: now[phase] - self._before[phase] for phase in Phase}
        self._before = now
        gathered = self._roles.world.gather(local)
        # of other processes, whose keys arrive as strings
        by_rank = [{Phase(name): s for name, s in seconds.items()} for seconds in gathered]
        return _values(steps, by_rank), list(self._stragglers(steps, by_rank)) if steps else []

    def _stragglers(self, steps: int, by_rank: Sequence[Seconds]) -> Iterator[str]:
        """Yield a message when a rank becomes a straggler among the ranks with the same work."""
        everyone = tuple(range(len(by_rank)))
        peers = {tuple(numbers) for numbers in self._roles.ranks.values()} or {everyone}  # by player
        if self._roles.has_server:
            peers = {everyone[1:]}  # rank 0 serves the others
        work = list(map(_work, by_rank))
        for group in peers:
            for rank in group:
                others = [work[other] for other in group if other != rank]
                median = statistics.median(others) if others else 0.0
                self._slow[rank] = self._slow[rank] + 1 if 0 < _SLOW * median < work[rank] else 0
                if self._slow[rank] == _TIMES:
                    phase = max(_WORK, key=by_rank[rank].__getitem__)
                    figures = f"{work[rank] / steps:.3g} s of work per step, most of it {phase}"
                    ratio = f"{work[rank] / median:.1f} times the median of the others"
                    yield f"warning: rank {rank} is a straggler: {figures}; {ratio}"


def _work(seconds: Seconds) -> float:
    return sum(seconds[phase] for phase in _WORK)


def _values(steps: int, by_rank: Sequence[Seconds]) -> dict[str, Any]:
    slowest = sorted(range(len(by_rank)), key=lambda rank: -_work(by_rank[rank]))
    ranks = sorted(slowest[:_MAX_RANKS])
    counted = steps * len(by_rank)
    totals = {phase: sum(seconds[phase] for seconds in by_rank) for phase in Phase}
    means = {phase: round(total / counted, 6) for phase, total in totals.items() if counted}
    return {
        "steps": steps,
        "ranks": ranks,
        "wall_s": [round(sum(by_rank[rank].values()), 6) for rank in ranks],
        "phase_s": {phase: [round(by_rank[rank][phase], 6) for rank in ranks] for phase in Phase},
        "per_step": means,
    }
