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
from paragan.distributed.launch.join import destroy_groups, join
from paragan.game.state import restore, state_of
from paragan.verify import double_backward, frozen_opponent
from paragan.verify.diagnosis import NetworkTraits, inspect_network
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
    failed_result,
    passed_result,
    run_law,
)
from paragan.verify.reference_run import (
    NAMES,
    NEAR,
    STEPS,
    ReferenceRun,
    Trace,
    TraceDifference,
    VerifiedNetworks,
    compare_traces,
    make_strategy,
)

ON_RANKS = ("ddp", "zero1", "zero2", "zero3")  # that are the whole batch; `local_sgd` is another run by design
_WAIT_S = 60.0

Traits = Mapping[Side, NetworkTraits]


@dataclass(frozen=True)
class PreparedLaws:
    """What the laws that compare games need: the subject as it can be played, what was seen of it, the plain game."""

    subject: VerifiedNetworks
    seen: Traits
    plain: Trace | None


Comparison = Callable[[PreparedLaws], Iterator[LawResult]]


def run_laws(subject: VerifiedNetworks, comparisons: tuple[Comparison, ...]) -> Iterator[LawResult]:
    """All rows; one alone where a network cannot be called in float64.

    comparisons: the laws that compare a game with the plain one; not run where that cannot be played.
    """
    seen: dict[Side, NetworkTraits] = {}
    for side in Side:
        called = run_law(CALLED, side.value.upper(), partial(_look, subject, side, seen))
        if called.result == "FAILED":
            yield called
            return
    yield (twice := run_law(TWICE, "D", lambda: double_backward.check_double_backward(subject, seen[Side.D])))
    if twice.result == "FAILED":  # so that one fault is told once
        subject = subject.without(Can.DOUBLE_BACKWARD)
    for side in Side:
        yield run_law(
            FROZEN, side.value.upper(), partial(frozen_opponent.check_frozen_opponent, subject, side, seen[side])
        )
    plain: list[Trace] = []
    yield run_law(DETERMINISTIC, "none", lambda: deterministic(subject, seen, plain))
    for comparison in comparisons:
        yield from comparison(PreparedLaws(subject, seen, plain[0] if plain else None))


def compare_with_plain(
    ready: PreparedLaws, law: str, name: str, play: Callable[[], Trace], allowed: float
) -> LawResult:
    """A game beside the plain one."""
    if ready.plain is None:
        return LawResult(law, name, "not run", None, f"there is nothing to compare with: see {DETERMINISTIC}")
    plain = ready.plain

    def look() -> LawResult:
        found = play()
        return law_result(compare_traces(found, plain, allowed), ready.seen)

    return run_law(law, name, look)


def law_result(found: TraceDifference, seen: Traits) -> LawResult:
    if not found.name:
        return passed_result(found.largest)
    return failed_result("; ".join(filter(None, (explain_difference(found, seen), str(found)))), found.largest)


def explain_difference(found: TraceDifference, seen: Traits) -> str:
    """What is known to make games differ; empty where nothing that was seen does."""
    if found.step == 0:
        return "the constructor draws from something else than torch's generator (numpy? random? the order of a set?)"
    for side, of in seen.items():
        if of.rows:
            return (
                f"{NAMES[side]}: a row changes (by {of.rows:.0e}) with the number of rows, batch norms left aside: "
                "a mean over the batch? keep samples apart, or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(of.iterating for of in seen.values()):
        return SPECTRAL
    for side, of in seen.items():
        if of.low:
            return f"{NAMES[side]}: returns {of.low} although it is given float64: leave the format to the input"
        if of.asks:
            return f"{NAMES[side]}: its forward asks a tensor for its value ({of.asks}) and may branch on it"
    return ""


def deterministic(subject: VerifiedNetworks, seen: Traits, plain: list[Trace]) -> LawResult:
    """Two plain games from different states of all generators; the first is kept where they are equal."""
    traces = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]), _other_random_state(seed):
            traces.append(ReferenceRun(subject).trace())
    found = compare_traces(traces[1], traces[0], 0.0)
    if not found.name:
        plain.append(traces[0])
        return passed_result(0.0)
    for side, of in seen.items():
        if of.secret:
            said = "use nn.Dropout, or set `draws = True` on the module" if of.secret == "torch" else "use torch's"
            why = f"{NAMES[side]}: its forward draws from {of.secret} without saying so (a functional dropout?): {said}"
            return failed_result(f"{why}; {found}", found.largest)
    why = (
        explain_difference(found, seen)
        if found.step == 0
        else "something outside the networks keeps a state from run to run"
    )
    return failed_result(f"{why}; {found}", found.largest)


def _look(subject: VerifiedNetworks, side: Side, seen: dict[Side, NetworkTraits]) -> LawResult:
    seen[side] = inspect_network(subject, side)
    return passed_result()


class _other_random_state:
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
        first, second = ReferenceRun(ready.subject), ReferenceRun(ready.subject)
        first.steps(1)
        for side, seat in first.seats.items():
            pieces, counters = state_of(seat)
            saved = StoredTensors.of({name: value.clone() for name, value in pieces.tensors.items()})
            restore(second.seats[side], saved, counters)
        second.gan.clock.step, second.gan.clock.images = first.gan.clock.step, first.gan.clock.images
        found = {1: second.weights()}
        second.steps()
        return found | {STEPS: second.weights()}

    found = compare_with_plain(ready, STOPPING, "none", play, 0.0)
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
            yield compare_with_plain(ready, PARTS, side.value.upper(), game, NEAR)


def _comparing(subject: VerifiedNetworks, side: Side) -> str:
    """Who compares the samples of a batch, which parts do not have."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    names = ["the loss"] * subject.game.loss.compares + [p.name for p in penalties if Can.COUPLED in p.needs]
    return f"{names[0]} compares the samples of a batch: parts are refused" if names else ""


def _no_parts(seen: Traits, side: Side) -> str:
    """Why a micro-batch is no part of the batch; G's turn goes through D."""
    for who in (Side.G, Side.D) if side is Side.G else (Side.D,):
        if seen[who].mixing:
            return f"{NAMES[who]}: {_some(seen[who].mixing)} takes its statistics from each micro-batch by itself"
    return explain_randomness(seen)


def explain_randomness(seen: Traits) -> str:
    """Why rows that are cut otherwise are another run; empty where nothing draws."""
    for side, of in seen.items():
        if of.draws:
            return f"{NAMES[side]}: {_some(of.drawing)} draws anew for each call and rank: a named exception of the law"
    return ""


def _some(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def one_is_none(ready: PreparedLaws) -> Iterator[LawResult]:
    """A group of one rank under each strategy: the plain run bit for bit."""
    world = None if ready.plain is None else join(None, torch.device("cpu"), _WAIT_S, alone_group=True)
    try:
        for name in (*ON_RANKS, "local_sgd"):
            if refused := unsupported_penalty(ready.subject, name):
                yield LawResult(ONE, name, "not run", None, refused)
                continue
            found = compare_with_plain(ready, ONE, name, partial(_trace, ready.subject, name, world or ALONE), 0.0)
            yield replace(found, reason=found.reason + explain_sharding(ready.seen, found))
    finally:
        if world is not None:
            destroy_groups(world)


def _trace(subject: VerifiedNetworks, name: str, world: World, parts: Mapping[Side, int] | None = None) -> Trace:
    return ReferenceRun(subject, name, world, parts or {}).trace()


def unsupported_penalty(subject: VerifiedNetworks, name: str) -> str:
    """What a penalty needs and this strategy lacks, as `build` would refuse it."""
    lacking = ((p.name, need) for p in subject.penalties for need in p.needs - make_strategy(name).can)
    return next((f"penalty {penalty} needs {need.value}, which {name} cannot run" for penalty, need in lacking), "")


def explain_sharding(seen: Traits, found: LawResult) -> str:
    """Of a sharded strategy that failed: weights that are asked for while their block lies in pieces."""
    for side, of in seen.items():
        if of.outside and found.result == "FAILED" and found.strategy.startswith(("zero2", "zero3", "hsdp")):
            weight, block = of.outside[0]
            return (
                f"; {NAMES[side]}: {weight} is used outside the forward of its block {block}, where it lies in pieces: "
                "call the block itself, or keep the layer out of `blocks`"
            )
    return ""
