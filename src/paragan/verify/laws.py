"""Laws of training that run in one process, one result per row.

`on_ranks` has the law that needs several. A failed result gives the difference and its known cause
in the networks (`diagnosis`).
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

_WAIT_S = 60.0

Traits = Mapping[Side, NetworkTraits]


@dataclass(frozen=True)
class PreparedLaws:
    """Inputs of the laws that compare runs.

    subject: the networks, without penalties that they do not support. seen: traits by side. plain:
    the reference run; None if it is not deterministic.
    """

    subject: VerifiedNetworks
    seen: Traits
    plain: Trace | None


Comparison = Callable[[PreparedLaws], Iterator[LawResult]]


def run_laws(subject: VerifiedNetworks, comparisons: tuple[Comparison, ...]) -> Iterator[LawResult]:
    """Run all laws; a network that cannot be called in float64 gives one row only.

    comparisons: laws that compare a run with the reference run; "not run" without one.
    """
    seen: dict[Side, NetworkTraits] = {}
    for side in Side:
        called = run_law(CALLED, side.value.upper(), partial(_look, subject, side, seen))
        if called.result == "FAILED":
            yield called
            return
    yield (twice := run_law(TWICE, "D", lambda: double_backward.check_double_backward(subject, seen[Side.D])))
    if twice.result == "FAILED":  # so that one fault is reported once
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
    """Compare a run with the reference run."""
    if ready.plain is None:
        return LawResult(law, name, "not run", None, f"there is no reference run to compare with; see {DETERMINISTIC}")
    plain = ready.plain

    def look() -> LawResult:
        return law_result(compare_traces(play(), plain, allowed), ready.seen)

    return run_law(law, name, look)


def law_result(found: TraceDifference, seen: Traits) -> LawResult:
    """Return the result of a comparison, with an explanation if it failed."""
    if not found.name:
        return passed_result(found.largest)
    return failed_result("; ".join(filter(None, (explain_difference(found, seen), str(found)))), found.largest)


def explain_difference(found: TraceDifference, seen: Traits) -> str:
    """Return the likely cause of a difference, from the traits of the networks; or ""."""
    if found.step == 0:
        return "the constructor does not draw from torch's generator alone (numpy? random? the order of a set?)"
    for side, of in seen.items():
        if of.row_dependence:
            return (
                f"{NAMES[side]}: a row changes (by {of.row_dependence:.0e}) with the number of "
                "rows, apart from batch norm: a mean over the batch? make samples independent, "
                "or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(of.torch_spectral_norms for of in seen.values()):
        return SPECTRAL
    for side, of in seen.items():
        if of.low_precision:
            return f"{NAMES[side]}: returns {of.low_precision} for float64 inputs; keep the dtype of the input"
        if of.value_access:
            return f"{NAMES[side]}: its forward reads the value of a tensor ({of.value_access}) and may branch on it"
    return ""


def deterministic(subject: VerifiedNetworks, seen: Traits, plain: list[Trace]) -> LawResult:
    """Compare two runs from different random states; `plain` receives the first if they agree."""
    traces = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]), _other_random_state(seed):
            traces.append(ReferenceRun(subject).trace())
    found = compare_traces(traces[1], traces[0], 0.0)
    if not found.name:
        plain.append(traces[0])
        return passed_result(0.0)
    for side, of in seen.items():
        if of.hidden_generator:
            fix = "use torch's generator"
            if of.hidden_generator == "torch":
                fix = "use nn.Dropout, or set `draws = True` on the module"
            why = f"its forward draws from {of.hidden_generator} without declaring it (a functional dropout?); {fix}"
            return failed_result(f"{NAMES[side]}: {why}; {found}", found.largest)
    why = "something outside the networks keeps state between runs"
    if found.step == 0:
        why = explain_difference(found, seen)
    return failed_result(f"{why}; {found}", found.largest)


def _look(subject: VerifiedNetworks, side: Side, seen: dict[Side, NetworkTraits]) -> LawResult:
    seen[side] = inspect_network(subject, side)
    return passed_result()


class _other_random_state:
    """Context in which the global random generators have another state."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.previous = random.getstate(), np.random.get_state()
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)

    def __exit__(self, *raised: object) -> None:
        random.setstate(self.previous[0])
        np.random.set_state(self.previous[1])


def stopping(ready: PreparedLaws) -> Iterator[LawResult]:
    """Stop after one step, restore the state into new players, and continue."""

    def play() -> Trace:
        first = ReferenceRun(ready.subject)
        second = ReferenceRun(ready.subject)
        first.steps(1)
        for side, seat in first.seats.items():
            pieces, counters = state_of(seat)
            saved = StoredTensors.of({name: value.clone() for name, value in pieces.tensors.items()})
            restore(second.seats[side], saved, counters)
        second.gan.clock.step = first.gan.clock.step
        second.gan.clock.images = first.gan.clock.images
        found = {1: second.weights()}
        second.steps()
        return found | {STEPS: second.weights()}

    found = compare_with_plain(ready, STOPPING, "none", play, 0.0)
    if found.result == "FAILED" and found.difference is not None:
        why = "a forward changes state that is not in the state dict (an attribute? a non-persistent buffer?)"
        found = replace(found, reason=f"{why}; {found.reason}")
    yield found


def parts(ready: PreparedLaws) -> Iterator[LawResult]:
    """Run each player's turn in two micro-batches."""
    for side in Side:
        if reason := _comparing(ready.subject, side) or _no_parts(ready.seen, side):
            yield LawResult(PARTS, side.value.upper(), "exempt", None, reason)
        else:
            game = partial(_trace, ready.subject, "none", ALONE, {side: 2})
            yield compare_with_plain(ready, PARTS, side.value.upper(), game, NEAR)


def _comparing(subject: VerifiedNetworks, side: Side) -> str:
    """Return why micro-batches are refused (an objective compares samples), or ""."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    names = ["the loss"] * subject.game.loss.compares + [p.name for p in penalties if Can.COUPLED in p.needs]
    return f"{names[0]} compares the samples of a batch, so micro-batches are refused" if names else ""


def _no_parts(seen: Traits, side: Side) -> str:
    """Return why micro-batches differ from the batch by design, or ""; G's turn runs D, too."""
    for who in (Side.G, Side.D) if side is Side.G else (Side.D,):
        if seen[who].mixing_layers:
            return f"{NAMES[who]}: {_some(seen[who].mixing_layers)} computes its statistics per micro-batch"
    return explain_randomness(seen)


def explain_randomness(seen: Traits) -> str:
    """Return why runs on other splits of the batch differ by design (random layers), or ""."""
    for side, of in seen.items():
        if of.draws:
            return (
                f"{NAMES[side]}: {_some(of.random_layers)} draws for each call and rank, a known exception of the law"
            )
    return ""


def _some(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def one_is_none(ready: PreparedLaws) -> Iterator[LawResult]:
    """Run each strategy in a group of one rank, which must equal the reference run bit for bit."""
    world = None if ready.plain is None else join(None, torch.device("cpu"), _WAIT_S, alone_group=True)
    try:
        alone = {name: at for name, at in ready.subject.joining_strategies.items() if not at.needs_hosts}
        for name in alone:
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
    """Return why `build` would refuse the penalties under this strategy, or ""."""
    abilities = make_strategy(name).can
    for penalty in subject.penalties:
        for need in penalty.needs - abilities:
            return f"penalty {penalty.name} needs {need.value}, which {name} does not support"
    return ""


def explain_sharding(seen: Traits, found: LawResult) -> str:
    """Return why a sharded strategy failed (a weight used while its block is sharded), or ""."""
    is_sharded = Can.WHOLE_WEIGHTS not in make_strategy(found.strategy.removesuffix(", uneven")).can
    for side, of in seen.items():
        if of.used_outside and found.result == "FAILED" and is_sharded:
            weight, block = of.used_outside[0]
            return (
                f"; {NAMES[side]}: {weight} is used outside the forward of its block {block}, "
                "where it is sharded: call the block itself, or leave the layer out of `blocks`"
            )
    return ""
