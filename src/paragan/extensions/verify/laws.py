"""Laws of training that run in one process, one result per row.

`on_ranks` has the law that needs several. A failed result gives the difference and its known cause
in the networks (`explanations`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from paragan.core import rng
from paragan.core.capabilities import Capability
from paragan.core.dist import ALONE, World
from paragan.core.layout import StoredTensors
from paragan.core.types import Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.extensions.verify import explanations
from paragan.extensions.verify.law_result import (
    DETERMINISTIC,
    NO_REFERENCE_RUN,
    LawResult,
    failed_result,
    passed_result,
    run_law,
)
from paragan.extensions.verify.network_laws import check_double_backward, check_frozen_opponent
from paragan.extensions.verify.network_traits import NetworkTraits, Traits, inspect_network
from paragan.extensions.verify.reference_run import (
    NEAR,
    STEPS,
    ReferenceRun,
    Trace,
    TraceDifference,
    VerifiedNetworks,
    compare_traces,
)
from paragan.game.state import restore, state_of
from paragan.layers.cross_rank import check_synchronised_norm

_STOPPING = "stopping is invisible"
_PARTS = "parts are the whole"
_ONE = "one is none"
_WAIT_S = 60.0


@dataclass(frozen=True)
class PreparedLaws:
    """Inputs of the laws that compare runs.

    subject: the networks, without penalties that they do not support. traits: of both, by side. plain:
    the reference run; None if it is not deterministic.
    """

    subject: VerifiedNetworks
    traits: Traits
    plain: Trace | None

    @cached_property
    def without_dropout(self) -> PreparedLaws:
        """Inputs of the laws that split the batch, on which the masks of `nn.Dropout` depend."""
        if self.plain is None or not any(net_traits.dropout for net_traits in self.traits.values()):
            return self
        subject = self.subject.without_dropout()
        return replace(self, subject=subject, plain=ReferenceRun(subject=subject).trace())


Comparison = Callable[[PreparedLaws], Iterator[LawResult]]


def run_laws(subject: VerifiedNetworks, comparisons: tuple[Comparison, ...]) -> Iterator[LawResult]:
    """Run all laws; a network that cannot be called in float64 gives one row only.

    comparisons: laws that compare a run with the reference run; "not run" without one.
    """
    # `run_law` returns a row also where a check raises; what later laws need of a check is put into these
    traits: dict[Side, NetworkTraits] = {}
    for side in Side:
        called = run_law("called in float64", side.value.upper(), partial(_inspect, subject, side, traits))
        if called.result == "FAILED":
            yield called
            return
    double_backward = run_law("twice differentiable", "D", lambda: check_double_backward(subject, traits[Side.D]))
    yield double_backward
    if double_backward.result == "FAILED":  # so that one fault is reported once
        subject = subject.without(Capability.DOUBLE_BACKWARD)
    for side in Side:
        check = partial(check_frozen_opponent, subject, side)
        yield run_law("frozen means frozen", side.value.upper(), check)
    traces: list[Trace] = []
    yield run_law(DETERMINISTIC, "none", lambda: deterministic(subject, traits, traces))
    ready = PreparedLaws(subject, traits, traces[0] if traces else None)
    for comparison in comparisons:
        yield from comparison(ready)


def compare_with_plain(
    ready: PreparedLaws, law: str, name: str, run: Callable[[], Trace], tolerance: float
) -> LawResult:
    """Return the result of a law by which a run equals the reference run. name: of its row in the table."""
    plain = ready.plain
    if plain is None:
        return LawResult(law=law, strategy=name, result="not run", reason=NO_REFERENCE_RUN)
    return run_law(law, name, lambda: law_result(compare_traces(run(), plain, tolerance), ready.traits))


def law_result(difference: TraceDifference, traits: Traits) -> LawResult:
    """Return the result of a comparison, with an explanation if it failed."""
    if not difference.name:
        return passed_result(difference.largest)
    reasons = (explanations.explain_difference(difference, traits), str(difference))
    return failed_result("; ".join(filter(None, reasons)), difference.largest)


def deterministic(subject: VerifiedNetworks, traits: Traits, traces: list[Trace]) -> LawResult:
    """Compare two runs from different random states; `traces` receives one if they are equal."""
    with rng.seeded_globally(seed=1):
        first = ReferenceRun(subject=subject).trace()
    with rng.seeded_globally(seed=2):
        second = ReferenceRun(subject=subject).trace()
    difference = compare_traces(second, first, tolerance=0.0)
    if not difference.name:
        traces.append(first)
        return passed_result(difference=0.0)
    reason = "something outside the networks keeps state between runs"
    if difference.step == 0:
        reason = explanations.explain_difference(difference, traits)
    return failed_result(f"{reason}; {difference}", difference.largest)


def _inspect(subject: VerifiedNetworks, side: Side, traits: dict[Side, NetworkTraits]) -> LawResult:
    """Call a network once, and put its traits into `traits`."""
    for name, module in subject.net(side).named_modules():
        check_synchronised_norm(module, name)
    traits[side] = inspect_network(subject, side)
    return passed_result()


def stopping(ready: PreparedLaws) -> Iterator[LawResult]:
    """Stop after one step, restore the state into new players, and continue."""

    def run() -> Trace:
        first = ReferenceRun(subject=ready.subject)
        second = ReferenceRun(subject=ready.subject)
        first.steps(1)
        for side, player in first.players.items():
            pieces, counters = state_of(player)
            saved = StoredTensors.of({name: value.clone() for name, value in pieces.tensors.items()})
            restore(second.players[side], saved, counters)
        second.gan.clock.step = first.gan.clock.step
        second.gan.clock.images = first.gan.clock.images
        trace = {1: second.weights()}
        second.steps()
        return trace | {STEPS: second.weights()}

    result = compare_with_plain(ready, _STOPPING, "none", run, 0.0)
    if result.result == "FAILED" and result.difference is not None:
        reason = "a forward changes state that is not in the state dict (an attribute? a non-persistent buffer?)"
        result = replace(result, reason=f"{reason}; {result.reason}")
    yield result


def parts(ready: PreparedLaws) -> Iterator[LawResult]:
    """Run each player's turn in two micro-batches."""
    ready = ready.without_dropout
    for side in Side:
        if reason := explanations.explain_micro_batches(ready.subject, ready.traits, side):
            yield LawResult(law=_PARTS, strategy=side.value.upper(), result="exempt", reason=reason)
        else:
            run = partial(_trace, ready.subject, "none", ALONE, {side: 2})
            result = compare_with_plain(ready, _PARTS, side.value.upper(), run, NEAR)
            yield replace(result, reason=result.reason or explanations.describe_dropout(ready.traits))


def one_is_none(ready: PreparedLaws) -> Iterator[LawResult]:
    """Run each strategy in a group of one rank, which must equal the reference run bit for bit."""
    world = None
    if ready.plain is not None:
        world = join(env=None, device=torch.device("cpu"), timeout_s=_WAIT_S, alone_group=True)
    try:
        for name, strategy in ready.subject.joining_strategies.items():
            if strategy.needs_hosts:
                continue
            if reason := explanations.unsupported_penalty(ready.subject, name):
                yield LawResult(law=_ONE, strategy=name, result="not run", reason=reason)
                continue
            run = partial(_trace, ready.subject, name, world or ALONE)
            result = compare_with_plain(ready, _ONE, name, run, 0.0)
            yield replace(result, reason=result.reason + explanations.explain_sharding(ready.traits, result, name))
    finally:
        if world is not None:
            destroy_groups(world)


def _trace(subject: VerifiedNetworks, name: str, world: World, parts: Mapping[Side, int] | None = None) -> Trace:
    return ReferenceRun(subject=subject, strategy=name, world=world, parts=parts or {}).trace()
