"""Known causes of a law that fails, or does not apply, from the traits of the networks."""

from __future__ import annotations

from collections.abc import Mapping

from paragan.core.types import Can, Side
from paragan.verify.diagnosis import NetworkTraits
from paragan.verify.finding import SPECTRAL, LawResult
from paragan.verify.reference_run import NAMES, TraceDifference, VerifiedNetworks, make_strategy

Traits = Mapping[Side, NetworkTraits]


def explain_difference(found: TraceDifference, traits: Traits) -> str:
    """Return the likely cause of a difference, from the traits of the networks; or ""."""
    if found.step == 0:
        return "the constructor does not draw from torch's generator alone (numpy? random? the order of a set?)"
    for side, of in traits.items():
        if of.row_dependence:
            return (
                f"{NAMES[side]}: a row changes (by {of.row_dependence:.0e}) with the number of "
                "rows, apart from batch norm: a mean over the batch? make samples independent, "
                "or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(of.torch_spectral_norms for of in traits.values()):
        return SPECTRAL
    for side, of in traits.items():
        if of.low_precision:
            return f"{NAMES[side]}: returns {of.low_precision} for float64 inputs; keep the dtype of the input"
        if of.value_access:
            return f"{NAMES[side]}: its forward reads the value of a tensor ({of.value_access}) and may branch on it"
    return ""


def explain_randomness(traits: Traits) -> str:
    """Return why runs on other splits of the batch differ by design (random layers), or ""."""
    for side, of in traits.items():
        if of.random_layers:
            return (
                f"{NAMES[side]}: {_some(of.random_layers)} draws for each call and rank, a known exception of the law"
            )
    return ""


def explain_micro_batches(subject: VerifiedNetworks, traits: Traits, side: Side) -> str:
    """Return why a turn in micro-batches is refused, or differs by design from one batch; or ""."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    names = ["the loss"] * subject.game.loss.compares + [p.name for p in penalties if Can.COUPLED in p.needs]
    if names:
        return f"{names[0]} compares the samples of a batch, so micro-batches are refused"
    for ran in (Side.G, Side.D) if side is Side.G else (Side.D,):  # G's turn runs D, too
        if traits[ran].mixing_layers:
            return f"{NAMES[ran]}: {_some(traits[ran].mixing_layers)} computes its statistics per micro-batch"
    return explain_randomness(traits)


def explain_sharding(traits: Traits, found: LawResult) -> str:
    """Return why a sharded strategy failed (a weight used while its block is sharded), or ""."""
    is_sharded = Can.WHOLE_WEIGHTS not in make_strategy(found.strategy.removesuffix(", uneven")).can
    for side, of in traits.items():
        if of.used_outside and found.result == "FAILED" and is_sharded:
            weight, block = of.used_outside[0]
            return (
                f"; {NAMES[side]}: {weight} is used outside the forward of its block {block}, "
                "where it is sharded: call the block itself, or leave the layer out of `blocks`"
            )
    return ""


def unsupported_penalty(subject: VerifiedNetworks, name: str) -> str:
    """Return why `build` would refuse the penalties or the balancer under this strategy, or ""."""
    abilities = make_strategy(name).can
    balancer = subject.game.balancer
    if balancer is not None and Can.COUPLED not in abilities:
        return f"balancer {balancer.name} needs {Can.COUPLED.value}, which {name} does not support"
    for penalty in subject.penalties:
        for need in penalty.needs - abilities:
            return f"penalty {penalty.name} needs {need.value}, which {name} does not support"
    return ""


def unsupported_network(subject: VerifiedNetworks, name: str, num_ranks: int) -> str:
    """Return why that many ranks cannot train one of the networks under this strategy, or ""."""
    strategy = make_strategy(name)
    return next(filter(None, (strategy.refusal(subject.net(side), num_ranks) for side in Side)), "")


def _some(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
