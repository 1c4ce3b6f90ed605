"""Why a network breaks a law, or why a law does not apply to it, from its traits."""

from paragan.core.capabilities import Capability, missing
from paragan.core.types import Side
from paragan.extensions.verify.law_result import SPECTRAL, LawResult
from paragan.extensions.verify.network_traits import Traits
from paragan.extensions.verify.reference_run import NAMES, TraceDifference, VerifiedNetworks, make_strategy
from paragan.game.needs import term_needs


def explain_difference(difference: TraceDifference, traits: Traits) -> str:
    """Return the likely cause of a difference, from the traits of the networks; or ""."""
    if difference.step == 0:
        return "the constructor does not draw from torch's generator alone (numpy? random? the order of a set?)"
    for side, net_traits in traits.items():
        if net_traits.row_dependence:
            return (
                f"{NAMES[side]}: a row changes (by {net_traits.row_dependence:.0e}) with the number of "
                "rows, apart from batch norm: a mean over the batch? make samples independent, "
                "or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(net_traits.torch_spectral_norms for net_traits in traits.values()):
        return SPECTRAL
    for side, net_traits in traits.items():
        if dtype := net_traits.low_precision:
            return f"{NAMES[side]}: returns {dtype} for float64 inputs; keep the dtype of the input"
        if line := net_traits.value_access:
            return f"{NAMES[side]}: its forward reads the value of a tensor ({line}) and may branch on it"
    return ""


def explain_randomness(traits: Traits) -> str:
    """Return why runs on other splits of the batch differ by design (draws that are not by row), or ""."""
    for side, net_traits in traits.items():
        if net_traits.random_layers or net_traits.draws_globally:
            source = _first_and_number(net_traits.random_layers) if net_traits.random_layers else "its forward"
            return (
                f"{NAMES[side]}: {source} draws for each call and rank, a known exception of the law; numbers that "
                "no split changes are drawn by row (paragan.layers.random.RowDrawing)"
            )
    return ""


def describe_dropout(traits: Traits) -> str:
    """Return which layers of dropout were switched off for a comparison with other splits of the batch, or ""."""
    layers = {side: net_traits.dropout for side, net_traits in traits.items() if net_traits.dropout}
    described = ", ".join(f"{NAMES[side]}: {_first_and_number(names)}" for side, names in layers.items())
    return f"without dropout, which draws for each call and rank ({described})" if layers else ""


def explain_micro_batches(subject: VerifiedNetworks, traits: Traits, side: Side) -> str:
    """Return why a turn in micro-batches is refused, or differs by design from one batch; or ""."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    coupled = ["the loss"] if subject.game.loss.compares else []
    coupled += [penalty.name for penalty in penalties if Capability.COUPLED in penalty.needs]
    if coupled:
        return f"{coupled[0]} compares the samples of a batch, so micro-batches are refused"
    for called in (Side.G, Side.D) if side is Side.G else (Side.D,):  # G's turn runs D, too
        if layers := traits[called].mixing_layers:
            return f"{NAMES[called]}: {_first_and_number(layers)} computes its statistics per micro-batch"
    return explain_randomness(traits)


def explain_sharding(traits: Traits, law: LawResult, strategy: str) -> str:
    """Return why a sharded strategy failed (a weight used while its block is sharded), to be appended, or ""."""
    if law.result != "FAILED" or Capability.WHOLE_WEIGHTS in make_strategy(strategy).capabilities:
        return ""
    for side, net_traits in traits.items():
        if net_traits.used_outside:
            weight, block = net_traits.used_outside[0]
            return (
                f"; {NAMES[side]}: {weight} is used outside the forward of its block {block}, "
                "where it is sharded: call the block itself, or leave the layer out of `blocks`"
            )
    return ""


def unsupported_penalty(subject: VerifiedNetworks, name: str) -> str:
    """Return why `build` would refuse the penalties or the balancer under this strategy, or ""."""
    holder = make_strategy(name).holder
    balancer = () if subject.game.balancer is None else subject.game.balancer.needs
    return missing(holder, (*balancer, *term_needs(subject.penalties, loss=frozenset(), name="")))


def unsupported_network(subject: VerifiedNetworks, name: str, num_ranks: int) -> str:
    """Return why that many ranks cannot train one of the networks under this strategy, or ""."""
    strategy = make_strategy(name)
    reasons = [strategy.refusal(subject.net(side), num_ranks) for side in Side]
    return reasons[0] or reasons[1]


def _first_and_number(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
