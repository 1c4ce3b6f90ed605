"""The laws on two networks in one process, one finding per row; `laws_on_ranks` has the one that needs several.

A finding that fails says why: what was seen to differ, and what in the networks is known to do that (`laws_traits`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from paragan.core.dist import ALONE, World
from paragan.core.pieces import StoredTensors
from paragan.core.types import Can, Side
from paragan.distributed.launch.join import join, leave
from paragan.game.state import restore, state_of
from paragan.verify import double_backward, frozen_opponent
from paragan.verify.diagnosis import NetworkTraits, traits
from paragan.verify.finding import (
    CALLED,
    DETERMINISTIC,
    FROZEN,
    ONE,
    PARTS,
    SPECTRAL,
    STOPPING,
    TWICE,
    LawResult,
    attempt,
    failed,
    held,
)
from paragan.verify.reference_run import (
    NEAR,
    STEPS,
    WHO,
    PlayedRun,
    SeparateLatents,
    Trace,
    VerifiedNetworks,
    apart,
    strategy,
)

ON_RANKS = ("ddp", "zero1", "zero2", "zero3")  # that are the whole batch; `local_sgd` is another run by design
_WAIT_S = 60.0

Seen = Mapping[Side, NetworkTraits]


@dataclass(frozen=True)
class PreparedLaws:
    """What the laws that compare games need: the subject as it can be played, what was seen of it, the plain game."""

    subject: VerifiedNetworks
    seen: Seen
    plain: Trace | None


Comparison = Callable[[PreparedLaws], Iterator[LawResult]]


def examine(subject: VerifiedNetworks, comparisons: tuple[Comparison, ...]) -> Iterator[LawResult]:
    """All rows; one alone where a network cannot be called in float64.

    comparisons: the laws that compare a game with the plain one; not run where that cannot be played.
    """
    seen: dict[Side, NetworkTraits] = {}
    for side in Side:
        called = attempt(CALLED, side.value.upper(), partial(_look, subject, side, seen))
        if called.result == "FAILED":
            yield called
            return
    yield (twice := attempt(TWICE, "D", lambda: double_backward.finding(subject, seen[Side.D])))
    if twice.result == "FAILED":  # so that one fault is told once
        subject = subject.without(Can.DOUBLE_BACKWARD)
    for side in Side:
        yield attempt(FROZEN, side.value.upper(), partial(frozen_opponent.finding, subject, side, seen[side]))
    plain: list[Trace] = []
    yield attempt(DETERMINISTIC, "none", lambda: deterministic(subject, seen, plain))
    for comparison in comparisons:
        yield from comparison(PreparedLaws(subject, seen, plain[0] if plain else None))


def compared(ready: PreparedLaws, law: str, name: str, play: Callable[[], Trace], allowed: float) -> LawResult:
    """A game beside the plain one."""
    if ready.plain is None:
        return LawResult(law, name, "not run", None, f"there is nothing to compare with: see {DETERMINISTIC}")
    plain = ready.plain

    def look() -> LawResult:
        found = play()
        return judged(apart(found, plain, allowed), ready.seen)

    return attempt(law, name, look)


def judged(found: SeparateLatents, seen: Seen) -> LawResult:
    if not found.name:
        return held(found.largest)
    return failed("; ".join(filter(None, (cause(found, seen), str(found)))), found.largest)


def cause(found: SeparateLatents, seen: Seen) -> str:
    """What is known to make games differ; empty where nothing that was seen does."""
    if found.step == 0:
        return "the constructor draws from something else than torch's generator (numpy? random? the order of a set?)"
    for side, of in seen.items():
        if of.rows:
            return (
                f"{WHO[side]}: a row comes out otherwise (by {of.rows:.0e}) among fewer rows, batch norms left aside: "
                "a mean over the batch? keep samples apart, or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(of.iterating for of in seen.values()):
        return SPECTRAL
    for side, of in seen.items():
        if of.low:
            return f"{WHO[side]}: returns {of.low} although it is given float64: leave the format to the input"
        if of.asks:
            return f"{WHO[side]}: its forward asks a tensor for its value ({of.asks}) and may branch on it"
    return ""


def deterministic(subject: VerifiedNetworks, seen: Seen, plain: list[Trace]) -> LawResult:
    """Two plain games from different states of all generators; the first is kept where they are equal."""
    traces = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]), _elsewhere(seed):
            traces.append(PlayedRun(subject).trace())
    found = apart(traces[1], traces[0], 0.0)
    if not found.name:
        plain.append(traces[0])
        return held(0.0)
    for side, of in seen.items():
        if of.secret:
            said = "use nn.Dropout, or set `draws = True` on the module" if of.secret == "torch" else "use torch's"
            why = f"{WHO[side]}: its forward draws from {of.secret} without saying so (a functional dropout?): {said}"
            return failed(f"{why}; {found}", found.largest)
    why = cause(found, seen) if found.step == 0 else "something outside the networks keeps a state from run to run"
    return failed(f"{why}; {found}", found.largest)


def _look(subject: VerifiedNetworks, side: Side, seen: dict[Side, NetworkTraits]) -> LawResult:
    seen[side] = traits(subject, side)
    return held()


class _elsewhere:
    """The global generators stand somewhere else inside, and where they stood after."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.kept = random.getstate(), np.random.get_state()
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)

    def __exit__(self, *raised: object) -> None:
        random.setstate(self.kept[0])
        np.random.set_state(self.kept[1])


def stopping(ready: PreparedLaws) -> Iterator[LawResult]:
    """One step, its state into freshly built players, the rest."""

    def play() -> Trace:
        first, second = PlayedRun(ready.subject), PlayedRun(ready.subject)
        first.steps(1)
        for side, seat in first.seats.items():
            pieces, counters = state_of(seat)
            saved = StoredTensors.of({name: value.clone() for name, value in pieces.tensors.items()})
            restore(second.seats[side], saved, counters)
        second.gan.clock.step, second.gan.clock.images = first.gan.clock.step, first.gan.clock.images
        found = {1: second.weights()}
        second.steps()
        return found | {STEPS: second.weights()}

    found = compared(ready, STOPPING, "none", play, 0.0)
    if found.result == "FAILED" and found.difference is not None:
        why = (
            "a forward changes something that is not in the state dict (an attribute, a buffer that is not persistent?)"
        )
        found = replace(found, reason=f"{why}; {found.reason}")
    yield found


def parts(ready: PreparedLaws) -> Iterator[LawResult]:
    """Each player's turn in two micro-batches."""
    for side in Side:
        if reason := _comparing(ready.subject, side) or _no_parts(ready.seen, side):
            yield LawResult(PARTS, side.value.upper(), "exempt", None, reason)
        else:
            game = partial(_trace, ready.subject, "none", ALONE, {side: 2})
            yield compared(ready, PARTS, side.value.upper(), game, NEAR)


def _comparing(subject: VerifiedNetworks, side: Side) -> str:
    """Who compares the samples of a batch, which parts do not have."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    names = ["the loss"] * subject.game.loss.compares + [p.name for p in penalties if Can.COUPLED in p.needs]
    return f"{names[0]} compares the samples of a batch: parts are refused" if names else ""


def _no_parts(seen: Seen, side: Side) -> str:
    """Why a micro-batch is no part of the batch; G's turn goes through D."""
    for who in (Side.G, Side.D) if side is Side.G else (Side.D,):
        if seen[who].mixing:
            return f"{WHO[who]}: {_some(seen[who].mixing)} takes its statistics from each micro-batch by itself"
    return drawing(seen)


def drawing(seen: Seen) -> str:
    """Why rows that are cut otherwise are another run; empty where nothing draws."""
    for side, of in seen.items():
        if of.draws:
            return f"{WHO[side]}: {_some(of.drawing)} draws anew for each call and rank: a named exception of the law"
    return ""


def _some(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def one_is_none(ready: PreparedLaws) -> Iterator[LawResult]:
    """A group of one rank under each strategy: the plain run bit for bit."""
    world = None if ready.plain is None else join(None, torch.device("cpu"), _WAIT_S, alone_group=True)
    try:
        for name in (*ON_RANKS, "local_sgd"):
            if refused := cannot(ready.subject, name):
                yield LawResult(ONE, name, "not run", None, refused)
                continue
            found = compared(ready, ONE, name, partial(_trace, ready.subject, name, world or ALONE), 0.0)
            yield replace(found, reason=found.reason + outside(ready.seen, found))
    finally:
        if world is not None:
            leave(world)


def _trace(subject: VerifiedNetworks, name: str, world: World, parts: Mapping[Side, int] | None = None) -> Trace:
    return PlayedRun(subject, name, world, parts or {}).trace()


def cannot(subject: VerifiedNetworks, name: str) -> str:
    """What a penalty needs and this strategy lacks, as `build` would refuse it."""
    lacking = ((p.name, need) for p in subject.penalties for need in p.needs - strategy(name).can)
    return next((f"penalty {penalty} needs {need.value}, which {name} cannot run" for penalty, need in lacking), "")


def outside(seen: Seen, found: LawResult) -> str:
    """Of a sharded strategy that failed: weights that are asked for while their block lies in pieces."""
    for side, of in seen.items():
        if of.outside and found.result == "FAILED" and found.strategy.startswith(("zero2", "zero3", "hsdp")):
            weight, block = of.outside[0]
            return (
                f"; {WHO[side]}: {weight} is used outside the forward of its block {block}, where it lies in pieces: "
                "call the block itself, or keep the layer out of `blocks`"
            )
    return ""
