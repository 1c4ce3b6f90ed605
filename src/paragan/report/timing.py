"""Time of asynchronous players and of ranks, summed over a record and as rows of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from paragan.core.phases import Phase
from paragan.report.record_values import finite_or_nan, first_items, first_pairs, to_mapping, to_natural

_MAX_BINS = 64
_MAX_SECONDS = 1e15
_DELAYS = {
    "lag": "Lag of the opponent of {}, in steps",
    "age": "Age of the images used by {}, in steps",
    "wait_ms": "Wait of {} for the other player, in milliseconds",
}


@dataclass
class Delays:
    """Histograms of delays by player and kind."""

    bins: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add histograms {player: {kind: {value: count}}}; other values are ignored."""
        for side, name in product("gd", _DELAYS):
            bins = self.bins.setdefault((side, name), Counter())
            for key, number in first_pairs(to_mapping(values.get(side)).get(name), _MAX_BINS):
                value = to_natural(key)
                count = to_natural(number)
                if value is not None and count is not None and (value in bins or len(bins) < _MAX_BINS):
                    bins[value] += count

    def tables(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return each histogram as a title with rows of value and share."""
        tables = []
        for (side, name), bins in self.bins.items():
            total = sum(bins.values())
            sign = "≤ " if name == "wait_ms" else ""
            if rows := [(f"{sign}{v}", f"{bins[v] / total:.1%}") for v in sorted(bins) if total]:
                tables.append((_DELAYS[name].format(side.upper()), rows))
        return tables


@dataclass
class PhaseTimes:
    """Seconds of each rank by phase."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add {phase: seconds of each of `ranks`}; other values are ignored."""
        ranks = [to_natural(rank) for rank in first_items(values.get("ranks"), _MAX_BINS)]
        by_phase = to_mapping(values.get("phase_s"))
        for name in Phase:
            for rank, number in zip(ranks, first_items(by_phase.get(name), _MAX_BINS), strict=False):
                spent = finite_or_nan(number)
                if rank is not None and 0 <= spent < _MAX_SECONDS:
                    by_rank = self.seconds.setdefault(name, {})
                    by_rank[rank] = by_rank.get(rank, 0.0) + spent

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return phase, share of the time of all ranks, and the rank with the largest share, with it."""
        ranks: dict[int, float] = {}
        for rank, spent in (pair for by_rank in self.seconds.values() for pair in by_rank.items()):
            ranks[rank] = ranks.get(rank, 0.0) + spent
        rows = []
        for name, by_rank in self.seconds.items():
            if total := sum(by_rank.values()):
                shares = {rank: spent / ranks[rank] for rank, spent in by_rank.items() if ranks[rank]}
                rank = max(shares, key=shares.__getitem__)
                most = (str(rank), f"{shares[rank]:.1%}") if len(ranks) > 1 else ("", "")
                rows.append((name.replace("_", " "), f"{total / sum(ranks.values()):.1%}", *most))
        return rows
