"""Delays on record, of players that do not wait for each other: how old answers were, and how long updates waited.

`Scheme.describe()` returns, by side of the players here and since its last call, `lags` {steps: count}, `waits_ms`
{at most: count}, `wait_s`, `used` (what each update has used, for a replay) and `in_step_at`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paragan.engine.trainer import Trainer

_NAMES = {"g": "lag", "d": "age"}  # of D as G meets it; of the images that D is shown


@dataclass
class DelayLog:
    """Asked at log points, by all ranks."""

    trainer: Trainer
    _in_step: set[str] = field(default_factory=set)

    def read(self) -> dict[str, dict[str, Any]]:
        """By side, over the ranks that hold it: histograms `lag` or `age` (steps) and `wait_ms`, `used` by rank.

        Empty where the scheme has none to tell.
        """
        describe = self.trainer.scheme.describe
        told = self.trainer.world.gather(describe()) if self.trainer.roles.is_split else [describe()]
        sides = sorted({side for of_rank in told for side in of_rank})
        return {side: _merged(side, [of_rank[side] for of_rank in told if side in of_rank]) for side in sides}

    def fallback_messages(self, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A line for each side that plays in step from now on."""
        new = [side for side, told in found.items() if told["in_step_at"] is not None and side not in self._in_step]
        self._in_step.update(new)
        return [
            f"{side}: gradients have left all proportion: from its update {found[side]['in_step_at']} on the players "
            "wait for each other (scheme.fall_back)"
            for side in new
        ]


def mean_delays(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """For the curves: mean lag and age in steps, mean wait per update in milliseconds."""
    values = {}
    for side, told in found.items():
        name, num_updates = _NAMES[side], sum(told["wait_ms"].values())
        count = sum(told[name].values())
        if count and num_updates:
            values[f"{side}/{name}"] = round(sum(int(n) * c for n, c in told[name].items()) / count, 4)
            values[f"{side}/wait_ms"] = round(1000 * told["wait_s"] / num_updates, 3)
    return values


def _merged(side: str, told: list[Mapping[str, Any]]) -> dict[str, Any]:
    fallen = [of_rank["in_step_at"] for of_rank in told if of_rank["in_step_at"] is not None]
    return {
        _NAMES[side]: _sum(of_rank["lags"] for of_rank in told),
        "wait_ms": _sum(of_rank["waits_ms"] for of_rank in told),
        "wait_s": sum(of_rank["wait_s"] for of_rank in told),
        "used": [of_rank["used"] for of_rank in told],
        "in_step_at": min(fallen, default=None),
    }


def _sum(histograms: Iterable[Mapping[Any, int]]) -> dict[str, int]:
    """JSON makes words of keys."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update({int(value): count for value, count in histogram.items()})
    return {str(value): total[value] for value in sorted(total)}
