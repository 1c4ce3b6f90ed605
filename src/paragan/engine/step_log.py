"""Events with the numbers, bytes and delays of the steps, which reach the host at log points only."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from torch import Tensor

from paragan.core.dist import World
from paragan.core.event import Event
from paragan.core.phases import PhaseClock
from paragan.core.roles import Roles
from paragan.core.types import Clock, Report
from paragan.engine.divergence import SkipMonitor
from paragan.engine.phase_log import PhaseLog
from paragan.game.player import Player
from paragan.game.policy import learning_rates
from paragan.game.scheme import Scheme
from paragan.loading.loader import BatchStream


class StepLog:
    """Events from the reports of a scheme: losses, learning rates, delays, bytes, phases, skips.

    log_steps: steps between two log points; a step between them is an event without values. saved: older numbers.
    """

    def __init__(
        self,
        scheme: Scheme,
        roles: Roles,
        players: Mapping[str, Player],
        batches: BatchStream,
        log_steps: int,
        phases: PhaseClock,
        saved: Mapping[str, float],
    ) -> None:
        self._roles = roles
        self._players = players
        self._batches = batches
        self._log_steps = log_steps
        self._saved = saved
        self._newest = Report(step=0, images=0, scalars={})  # value of each: turns and lazy penalties skip steps
        self._delays = DelayLog(scheme, roles)
        self._traffic = TrafficLog(roles.world)
        self._phases = PhaseLog(phases, roles)
        self.skips = SkipMonitor(players, roles.world, batches.source)
        self._num_steps = 0  # since the last log point
        self._began = time.monotonic()
        self._waited_s = batches.wait_s

    def events(self, report: Report, is_last: bool = False) -> Iterator[Event]:
        """Yield the events of a step. Collective at log points, of which the last step of a run is one.

        Raises `DivergedError` if a player skips many updates in a row.
        """
        self._newest = replace(report, scalars={**self._newest.scalars, **report.scalars})
        self._num_steps += 1
        at = Clock(report.step, report.images)
        is_log_point = is_last or report.step % self._log_steps == 0
        for loading in self._batches.loading_values(is_log_point):
            yield _event("loading", at, loading)
        if not is_log_point:
            yield _event("step", at)
            return
        values = self.newest_numbers({**self._rates(), **report.weights})
        delays = self._delays.read()
        yield from self.delay_events(at, delays)
        yield from self._measured_events(at)
        yield _event("step", at, {**values, **mean_delays(delays)})
        yield from self._skip_events(at)

    def newest_numbers(self, extra: Mapping[str, float] | None = None) -> dict[str, float]:
        """Read the newest value of each number of the players, and `extra` of every rank. Collective."""
        return {**self._saved, **read_numbers(self._roles, self._newest, extra)}

    def forget(self, saved: Mapping[str, float]) -> None:
        """Continue with the numbers of a checkpoint whose players the run has returned to."""
        self._newest = replace(self._newest, scalars={})
        self._saved = saved

    def delay_events(self, at: Clock, delays: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[Event]:
        """Yield the delays since the last log point, or given ones. Collective."""
        values = self._delays.read() if delays is None else delays
        if values:
            yield _event("delays", at, values)
        for text in self._delays.fallback_messages(values):
            yield _event("event", at, {"text": text})

    def last_events(self, at: Clock) -> Iterator[Event]:
        """Yield delays, bytes, phases and skips since the last log point. Collective.

        Raises `DivergedError` if a player skipped all updates of the session.
        """
        yield from self.delay_events(at)
        yield from self._measured_events(at, at_the_end=True)
        yield from self._skip_events(at, at_the_end=True)

    def _rates(self) -> dict[str, float]:
        rates: dict[str, float] = {}
        for side, player in self._players.items():
            rates |= {f"{side}/{name}": rate for name, rate in learning_rates(player.optimizer).items()}
        if "d" in self._players:  # only ranks of D load images
            elapsed_s = max(time.monotonic() - self._began, 1e-9)
            rates["data_wait"] = round((self._batches.wait_s - self._waited_s) / elapsed_s, 4)
        return rates

    def _measured_events(self, at: Clock, at_the_end: bool = False) -> Iterator[Event]:
        if traffic := self._traffic.read(self._num_steps):
            yield _event("traffic", at, traffic)
        phases, warnings = self._phases.read(self._num_steps, at_the_end)
        self._num_steps = 0
        if phases:
            yield _event("phases", at, phases)
        for text in warnings:
            yield _event("event", at, {"text": text})

    def _skip_events(self, at: Clock, at_the_end: bool = False) -> Iterator[Event]:
        for text in self.skips.messages():
            yield _event("event", at, {"text": text})
        self.skips.raise_if_idle(at.step, at_the_end)


def read_numbers(roles: Roles, report: Report, extra: Mapping[str, float] | None = None) -> dict[str, float]:
    """Read the numbers of a step of both players, and `extra` of every rank. Collective.

    Shares are added by rank: the order of an `all_reduce` depends on how many numbers there are.
    """
    shares = roles.batch_world.gather(report.read())
    total = {name: sum(share[name] for share in shares) for name in shares[0]}
    return roles.gather_merged(total | dict(extra or {}))


def sum_scalars(roles: Roles, report: Report) -> Mapping[str, Tensor | float]:
    """Return the numbers of a step; without device synchronization if both players are here."""
    if roles.is_split:
        return read_numbers(roles, report)
    return {name: roles.world.sum(share.detach().clone()) for name, share in report.scalars.items()}


def _event(kind: str, at: Clock, values: Mapping[str, Any] | None = None) -> Event:
    return Event(kind=kind, step=at.step, images=at.images, values=values or {})


class TrafficLog:
    """Record of the bytes since the last log point, over all ranks of `world`.

    Counting is local; only `read` communicates. Its bytes belong to the next log point.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent_before = Counter(world.sent)
        self._on_links_before = Counter(world.on_links)

    def read(self, steps: int) -> dict[str, Any]:
        """Return the bytes per step since the last call, or nothing for one rank. Collective.

        steps: since then. `sent`: what ranks passed to collectives and links; `links`: what
        travels for it (`core.dist.link_bytes`); each by kind, of all ranks together.
        """
        if self._world.size == 1 or not steps:
            return {}
        sent = Counter(self._world.sent)
        on_links = Counter(self._world.on_links)
        # a difference of counters leaves out the kinds that were not sent
        by_rank = self._world.gather([sent - self._sent_before, on_links - self._on_links_before])
        self._sent_before = sent
        self._on_links_before = on_links
        sent_by_rank, on_links_by_rank = zip(*by_rank, strict=True)
        return {"steps": steps, "sent": _per_step(sent_by_rank, steps), "links": _per_step(on_links_by_rank, steps)}


def _per_step(bytes_by_rank: Iterable[Mapping[str, int]], steps: int) -> dict[str, float]:
    """Return the bytes of one step by kind, of all ranks together."""
    total = sum(map(Counter, bytes_by_rank), Counter[str]())
    return {kind: round(total[kind] / steps, 1) for kind in sorted(total)}


_DELAY_NAMES = {"g": "lag", "d": "age"}  # of the D that G trains against; of the fakes in D's batch


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
        new = [side for side, log in delays.items() if log["in_step_at"] is not None and side not in self._in_step]
        self._in_step.update(new)
        return [
            f"warning: {side}: its gradients exploded: from update {delays[side]['in_step_at']} on the "
            "players wait for each other (scheme.fall_back)"
            for side in new
        ]


def mean_delays(delays: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return mean lag and age in steps and mean wait per update in milliseconds, for the curves."""
    values = {}
    for side, log in delays.items():
        name = _DELAY_NAMES[side]
        num_updates = sum(log["wait_ms"].values())
        num_delays = sum(log[name].values())
        if num_delays and num_updates:
            total_steps = sum(int(steps) * count for steps, count in log[name].items())
            values[f"{side}/{name}"] = round(total_steps / num_delays, 4)
            values[f"{side}/wait_ms"] = round(1000 * log["wait_s"] / num_updates, 3)
    return values


def _merge(side: str, by_rank: list[Mapping[str, Any]]) -> dict[str, Any]:
    versions = [delays["in_step_at"] for delays in by_rank if delays["in_step_at"] is not None]
    return {
        _DELAY_NAMES[side]: _sum_histograms(delays["lags"] for delays in by_rank),
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
