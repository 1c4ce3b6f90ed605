"""Laws of a single network: "twice differentiable" and "frozen means frozen".

Gradients of the logits at the images and of R1 are compared with central differences, which detect
faults that raise no error: a detach on one of two paths, or a custom backward that returns numbers
without a graph. A frozen player must not change in the other player's turn: no weight, buffer or output.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.types import Side
from paragan.extensions.verify.law_result import SPECTRAL, LawResult, failed_result, passed_result
from paragan.extensions.verify.network_traits import NetworkTraits, has_torch_spectral_norm, network_output
from paragan.extensions.verify.reference_run import NAMES, ReferenceRun, VerifiedNetworks, network_inputs
from paragan.game.player import Player
from paragan.layers.random import preserved_state

# steps of the central differences
_STEP_X = 1e-6  # of images
_STEP_W = 1e-8  # of weights; short enough that a kink (of a ReLU) in between is unlikely
_TOLERANCE = 1e-3  # relative
# rounding of float64 over these steps, with a margin: errors below say nothing
_ROUNDING_X = 1e-7
_ROUNDING_W = 1e-5  # as a share of R1
_DIRECTIONS = 3  # several, because one may cross a kink
# parts of torch's messages where a gradient cannot be taken
_REFUSES = ("once_differentiable", "is not implemented", "does not require grad", "not have been used in the graph")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of batch norm
_VECTORS = ("_u", "_v")  # of spectral norm
_OF_SPECTRAL_NORM = (
    "is a vector of torch's spectral norm, which also iterates in the other player's turns, as in a plain loop; "
    "paragan.layers.spectral_norm.spectral_norm iterates once in each of its own updates"
)
_OF_TORCH_NORMS = (
    "is a running statistic of torch's batch norm, which also follows the other player's turns, as in a plain loop: "
    "training is the same, evaluation uses the average of both; paragan.layers.batch_norm.AffineBatchNorm follows "
    "its own updates alone. On ranks the statistics of both span all ranks; a loop of your own needs SyncBatchNorm"
)


def check_double_backward(subject: VerifiedNetworks, traits: NetworkTraits) -> LawResult:
    """Check first and second gradients of the discriminator on real images. traits: of the discriminator."""
    net = subject.net(Side.D)
    x, *conditions = network_inputs(subject, Side.D)
    assert x is not None
    x = x.requires_grad_()
    try:
        with _same_randomness(net):
            total = _total(net, x, conditions)
            (gradient,) = torch.autograd.grad(total, x, create_graph=True, allow_unused=True)
            if gradient is None or not total.requires_grad:
                return failed_result(
                    "no gradient reaches the images: is there a detach or a no_grad in Discriminator.forward?"
                )
            weights = [w for w in net.parameters() if w.requires_grad]
            # first, since later calls restore buffers that the backward of batch norm reads
            slopes = None
            if gradient.requires_grad:
                slopes = torch.autograd.grad(_r1(gradient), weights, allow_unused=True, materialize_grads=True)
        # outside, so that the vectors of a spectral norm are those that the first call has met
        error = _first_error(net, x, conditions, gradient.detach())
        if error > _TOLERANCE:
            reason = "the gradient at the images is not the slope of the logits: a detach or no_grad on some path?"
            return failed_result(reason + _suspects(traits), error)
        if slopes is None:
            return failed_result("the gradient at the images has no graph" + _suspects(traits))
    except RuntimeError as refusal:
        if any(phrase in str(refusal) for phrase in _REFUSES):
            return failed_result(str(refusal).splitlines()[0][:200] + _suspects(traits))
        raise
    if not all(slope.isfinite().all() for slope in slopes):
        return failed_result(
            "the second derivative is not finite: a square root or a norm at zero?" + _suspects(traits)
        )
    if traits.torch_spectral_norms:  # its vectors change with the weights, and so would the differences
        return passed_result()
    error = _second_error(net, x, conditions, slopes)
    if error > _TOLERANCE:
        return failed_result("the second derivative is not the derivative of the first" + _suspects(traits), error)
    return passed_result(error)


def _suspects(traits: NetworkTraits) -> str:
    """Name the custom autograd Functions, as the likely cause."""
    if not traits.custom_functions:
        return ""
    names = " and ".join(traits.custom_functions)
    return f"; the network uses the autograd Function {names}: its backward must consist of differentiable operations"


@contextmanager
def _same_randomness(net: nn.Module) -> Iterator[None]:
    """Use the same random numbers every time; restore buffers and random state afterwards."""
    with preserved_state(net), rng.seeded_globally(seed=0):
        yield


def _total(net: nn.Module, x: Tensor, conditions: Sequence[Tensor | None]) -> Tensor:
    """Return the sum of logits with random weights: the plain one is constant behind batch norm and a linear layer."""
    logits = network_output(Side.D, net, (x, *conditions))
    weights = torch.rand(logits.shape, generator=rng.generator("laws/total"), dtype=logits.dtype)
    return ((0.5 + weights) * logits).sum()


def _r1(gradient: Tensor) -> Tensor:
    return gradient.square().sum() / 2


def _first_error(net: nn.Module, x: Tensor, conditions: Sequence[Tensor | None], gradient: Tensor) -> float:
    """Compare the gradient at the images with central differences of the logits."""

    @torch.no_grad()
    def total(distance: float, direction: Sequence[Tensor]) -> float:
        with _same_randomness(net):
            return float(_total(net, x + distance * direction[0], conditions))

    directions = [[torch.randn(x.shape, generator=rng.generator("laws/x", n))] for n in range(_DIRECTIONS)]
    return min(_slope_error(total, direction, [gradient], _STEP_X, _ROUNDING_X) for direction in directions)


def _second_error(net: nn.Module, x: Tensor, conditions: Sequence[Tensor | None], slopes: Sequence[Tensor]) -> float:
    """Compare the gradients of R1 at the weights with central differences of R1; the weights stay moved."""
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    original = [weight.detach().clone() for weight in weights]

    def penalty(distance: float, direction: Sequence[Tensor]) -> float:
        with torch.no_grad():
            for weight, value, part in zip(weights, original, direction, strict=True):
                weight.copy_(value + distance * part)
        with _same_randomness(net):
            (gradient,) = torch.autograd.grad(_total(net, x, conditions), x)
        return float(_r1(gradient))

    rounding = _ROUNDING_W * penalty(0.0, original)  # of no distance, in any direction
    errors = []
    for number in range(_DIRECTIONS):
        generator = rng.generator("laws/w", number)
        direction = [torch.randn(w.shape, generator=generator) * (w.abs().mean() + 1e-3) for w in original]
        errors.append(_slope_error(penalty, direction, slopes, _STEP_W, rounding))
    return min(errors)


def _slope_error(
    function: Callable[[float, Sequence[Tensor]], float],
    direction: Sequence[Tensor],
    gradients: Sequence[Tensor],
    step: float,
    rounding: float,
) -> float:
    """Return the relative difference of a central difference and the slope by gradients.

    function: of a distance along a direction. The result is 0 if `rounding` explains the difference.
    """
    slope = (function(step, direction) - function(-step, direction)) / (2 * step)
    expected = float(sum((g * part).sum() for g, part in zip(gradients, direction, strict=True)))
    error = abs(slope - expected)
    return 0.0 if error <= rounding else error / max(abs(slope), abs(expected))


def check_frozen_opponent(subject: VerifiedNetworks, side: Side) -> LawResult:
    """Check that this player does not change while the other one runs its turn."""
    run = ReferenceRun(subject=subject)
    player = run.players[side]
    opponent = run.players[Side.D if side is Side.G else Side.G]
    shared = _shared_weight(player.net, opponent.net)
    if shared:
        return failed_result(
            f"{NAMES[side]}.{shared} is also a weight of the other network; networks must not share weights"
        )
    before = _state(player.net)
    turn = run.gan.g_turn(subject.real()) if side is Side.D else run.gan.d_turn(subject.real())
    opponent.update(turn, against=player)
    changed = [name for name, value in _state(player.net).items() if not torch.equal(value, before[name])]
    statistics = [name for name in changed if _is_statistic_of_torch(player.net, name)]
    if changed != statistics:
        name = next(name for name in changed if name not in statistics)
        return failed_result(f"{NAMES[side]}.{name} changed in the other player's turn: {_remedy(player.net, name)}")
    leaked = next((name for name, weight in player.net.named_parameters() if weight.grad is not None), None)
    if leaked is not None:
        return failed_result(
            f"{NAMES[side]}.{leaked} has a gradient from the other player's turn: is there an enable_grad in forward?"
        )
    result = _compare_behaviour(subject, side, player)
    if statistics and result.result == "held":
        reason = _OF_SPECTRAL_NORM if statistics[0].endswith(_VECTORS) else _OF_TORCH_NORMS
        return replace(result, result="exempt", reason=f"{NAMES[side]}.{statistics[0]} {reason}")
    return result


def _compare_behaviour(subject: VerifiedNetworks, side: Side, player: Player) -> LawResult:
    """Compare outputs with a new network of equal weights and buffers, to find other state."""
    new = subject.net(side)
    new.load_state_dict(player.net.state_dict())  # the constructor may draw other weights
    output = _probe(subject, side, player.net)
    new_output = _probe(subject, side, new)
    if torch.equal(output, new_output):
        return passed_result(difference=0.0)
    return failed_result(
        f"{NAMES[side]} gives other outputs after the other player's turn although no weight or buffer changed: its "
        "forward keeps state in an attribute; advance it only where "
        "paragan.layers.update_once.UpdateOnce.take_update() returns True",
        float((output - new_output).abs().max()),
    )


def _probe(subject: VerifiedNetworks, side: Side, net: nn.Module) -> Tensor:
    with torch.no_grad(), _same_randomness(net):
        return network_output(side, net, network_inputs(subject, side))


def _state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in (*net.named_parameters(), *net.named_buffers())}


def _shared_weight(net: nn.Module, other: nn.Module) -> str:
    """Return the name in `net` of a weight that both networks have; empty: none."""
    weights_of_other = {id(weight) for weight in other.parameters()}
    return next((name for name, weight in net.named_parameters() if id(weight) in weights_of_other), "")


def _is_statistic_of_torch(net: nn.Module, name: str) -> bool:
    """Return whether a tensor is a running statistic of torch's batch norms, or a vector of its spectral norm."""
    module_name, _, buffer = name.rpartition(".")
    module = net.get_submodule(module_name)
    if has_torch_spectral_norm(module) and buffer.endswith(_VECTORS):
        return True
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and buffer in _STATISTICS


def _remedy(net: nn.Module, name: str) -> str:
    """Name the module that changes the tensor, and what to use instead."""
    module = net.get_submodule(name.rpartition(".")[0])
    if has_torch_spectral_norm(module):
        return SPECTRAL
    return (
        f"{type(module).__name__} changes it in its forward; derive it from paragan.layers.update_once.UpdateOnce, "
        "and change it only where self.take_update() returns True"
    )
