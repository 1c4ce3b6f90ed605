"""Delays of players that do not wait for each other: age of answers, and waits of updates.

`Scheme.describe()` returns, by side of the players here and since its last call, `lags` {steps:
count}, `waits_ms` {at most: count}, `wait_s`, `used` (what each update has used, for a replay) and
`in_step_at`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from paragan.core.roles import Roles
from paragan.game.scheme import Scheme

_NAMES = {"g": "lag", "d": "age"}  # of the D that G trains against; of the fakes in D's batch


@dataclass
class DelayLog:
    """Record of the delays of asynchronous schemes, read at log points."""

    scheme: Scheme
    roles: Roles
    _in_step: set[str] = field(default_factory=set)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the delays since the last call, by side; empty for synchronous schemes.

        Histograms `lag` or `age` (steps) and `wait_ms`, and `used` by rank. Collective if the
        players are on separate ranks.
        """
        local = self.scheme.describe()
        by_rank = self.roles.world.gather(local) if self.roles.is_split else [local]
        sides = sorted(set(chain.from_iterable(by_rank)))
        return {side: _merge(side, [delays[side] for delays in by_rank if side in delays]) for side in sides}

    def fallback_messages(self, delays: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return a line for each side that has become synchronous since the last call."""
        new = [side for side, of in delays.items() if of["in_step_at"] is not None and side not in self._in_step]
        self._in_step.update(new)
        return [
            f"{side}: its gradients exploded: from update {delays[side]['in_step_at']} on the "
            "players wait for each other (scheme.fall_back)"
            for side in new
        ]


def mean_delays(delays: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return mean lag and age in steps and mean wait per update in milliseconds, for the curves."""
    values = {}
    for side, of in delays.items():
        name = _NAMES[side]
        num_updates = sum(of["wait_ms"].values())
        count = sum(of[name].values())
        if count and num_updates:
            values[f"{side}/{name}"] = round(sum(int(n) * c for n, c in of[name].items()) / count, 4)
            values[f"{side}/wait_ms"] = round(1000 * of["wait_s"] / num_updates, 3)
    return values


def _merge(side: str, by_rank: list[Mapping[str, Any]]) -> dict[str, Any]:
    versions = [delays["in_step_at"] for delays in by_rank if delays["in_step_at"] is not None]
    return {
        _NAMES[side]: _sum_histograms(delays["lags"] for delays in by_rank),
        "wait_ms": _sum_histograms(delays["waits_ms"] for delays in by_rank),
        "wait_s": sum(delays["wait_s"] for delays in by_rank),
        "used": [delays["used"] for delays in by_rank],
        "in_step_at": min(versions, default=None),
    }


def _sum_histograms(histograms: Iterable[Mapping[Any, int]]) -> dict[str, int]:
    """Sum over the ranks; keys become strings, as in JSON."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update({int(value): count for value, count in histogram.items()})
    return {str(value): total[value] for value in sorted(total)}
