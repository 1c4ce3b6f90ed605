"""Bytes that all ranks of a run send, by kind and step, at log points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paragan.core.dist import World


class TrafficLog:
    """Record of the bytes since the last log point, over all ranks of `world`.

    Counting is local; only `read` communicates. Its bytes belong to the next log point.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._num_steps = 0
        self._sent_before = dict(world.sent)
        self._on_links_before = dict(world.on_links)

    def count_step(self) -> None:
        """Count one step."""
        self._num_steps += 1

    def read(self) -> dict[str, Any]:
        """Return the bytes per step since the last call, or nothing for one rank. Collective.

        `steps`: since then. `sent`: what ranks passed to collectives and links; `links`: what
        travels for it (`core.traffic.link_bytes`); each by kind, of all ranks together.
        """
        if self._world.size == 1 or not self._num_steps:
            return {}
        here = [
            _difference(self._world.sent, self._sent_before),
            _difference(self._world.on_links, self._on_links_before),
        ]
        self._sent_before = dict(self._world.sent)
        self._on_links_before = dict(self._world.on_links)
        by_rank = self._world.gather(here)
        steps = self._num_steps
        self._num_steps = 0
        sent = _mean(steps, (rank[0] for rank in by_rank))
        return {"steps": steps, "sent": sent, "links": _mean(steps, (rank[1] for rank in by_rank))}


def _difference(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {kind: value - before.get(kind, 0) for kind, value in now.items()}


def _mean(steps: int, by_rank: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum over ranks per step, by kind, without kinds that were not sent."""
    total: dict[str, float] = {}
    for values in by_rank:
        for kind, value in values.items():
            total[kind] = total.get(kind, 0) + value
    return {kind: round(total[kind] / steps, 1) for kind in sorted(total) if total[kind]}
