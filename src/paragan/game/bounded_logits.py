"""Whether a discriminator can return any real number as a logit, and have any slope, for notices of a trial."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss, Penalty
from paragan.core.rng import seed_torch
from paragan.game.gradient_flow import REFUSALS, call_on_leaf, notice
from paragan.game.network import CalledNetwork

_NUDGE = 1e6  # far above what any layer returns for a sample
_REACH = 4.0  # of most losses, which are flat farther from 0: there, a clamp or soft cap of logits changes nothing
_FARTHEST = 20.0  # reach of losses that always gain by larger logits (Wasserstein); farther ones are of the nudge
_SURE = 8.0  # logit of which D is sure for all other losses
_GAIN = 0.05  # gradient there, from which a loss gains by larger logits
_STEEPER = 1.5  # of slopes at twice the weights: at least 2 without a norm, 1 with spectral norm in every layer
_LOGITS = "and the losses take logits, any real numbers"
_NARROWEST = 0.1  # change of a logit by the nudge, below which nothing is known of it


def notice_bounded_logits(
    net: nn.Module, inputs: Sequence[Tensor | None], call_of: Callable[[str], str], loss: Loss | None = None
) -> None:
    """Warn of discriminators whose logits are bounded, on one side or both. Changes the buffers of `net`.

    inputs: of D. call_of: returns the call by name, for messages. loss: one of probabilities gives no notice.
    """
    if (reach := _REACH if loss is None else _reach_of(loss)) is None:
        return
    called = CalledNetwork(module=net)
    ranges: dict[str, tuple[float, float]] = {}
    with suppress(*REFUSALS):  # of such values: only a notice is lost
        ranges = bounded_ranges(net, lambda: DiscriminatorOutput.of(called(*inputs)), reach)
    for name, (low, high) in ranges.items():
        text = f"its values are {_range_text(low, high)} for any weights; leave it out"
        notice(f"{call_of(name)} ends in {_functions(low, high)}, {_LOGITS}: {text}")


def notice_steep_logits(
    net: nn.Module, inputs: Sequence[Tensor | None], call: str, loss: Loss, penalties: Sequence[Penalty] = ()
) -> None:
    """Warn of a D whose slopes only its weights limit, under a loss that always gains by steeper ones (Wasserstein).

    Twice the weights leave the slopes of a network with spectral norm unchanged. call: of D, for the message.
    penalties: of D, any of which may limit them. Doubles the weights of `net`.
    """
    if penalties or _reach_of(loss) != _FARTHEST:
        return
    with suppress(*REFUSALS):
        before = _slope(net, inputs)
        with torch.no_grad():
            for weight in net.parameters():
                weight.mul_(2 if weight.dim() > 1 else 1)  # larger biases move the kinks of slopes
        if _slope(net, inputs) > _STEEPER * before:
            notice(
                f"{call} can have any slope, and the loss gains by every steeper one, so that training usually "
                "diverges: add the penalty gradient_penalty, or spectral norm to all layers of D"
            )


def _slope(net: nn.Module, inputs: Sequence[Tensor | None]) -> float:
    """Return the norm of the gradient of D's logits with respect to its first input."""
    leaf, output = call_on_leaf(net, inputs)
    logits = torch.cat([member.logits_B for member in output.by_name.values()])
    return float(torch.autograd.grad(logits.sum(), leaf)[0].norm())


def _reach_of(loss: Loss) -> float | None:
    """Return how far from 0 a bound of the logits matters for a loss; None for a loss of probabilities.

    A loss of probabilities fails on logits far from them, or is flat there, even where D is wrong. Of the others,
    those that are flat where D is sure have `_REACH`; Wasserstein is flat nowhere, and has `_FARTHEST`.
    """
    for_wrong = _gradients_of(loss, -2.0, 2.0)
    if not all(gradient and math.isfinite(gradient) for gradient in for_wrong):
        return None
    real, fake = _gradients_of(loss, _SURE, -_SURE)
    return _FARTHEST if real < -_GAIN or fake > _GAIN else _REACH


def _gradients_of(loss: Loss, real: float, fake: float) -> tuple[float, float]:
    """Return the gradients of D's loss for the logits of a real and a generated sample; 0 if it refuses them."""
    real_B, fake_B = (torch.full((2,), logit, requires_grad=True) for logit in (real, fake))
    with suppress(*REFUSALS):
        values = loss.d(real_B, fake_B, real_B, fake_B) if loss.compares else loss.d(real_B, fake_B)
        of_real, of_fake = torch.autograd.grad(values.sum(), (real_B, fake_B))
        if values.isfinite().all():
            return float(of_real.mean()), float(of_fake.mean())
    return 0.0, 0.0


def bounded_ranges(
    net: nn.Module, call: Callable[[], DiscriminatorOutput], reach: float = _REACH
) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest logit of those discriminators whose logits are bounded, by name ("" of one alone).

    What every operation on the weights returns is moved far in both directions. If the logits then move, but not far,
    an operation after the last weight bounds them: a sigmoid, tanh or clamp, written as a module or by hand; so does a
    relu or softplus if they stay near 0 in one direction. The logits of an untrained D are near 0, so that their
    values show nothing. reach: largest distance from 0 of such a bound. Infinity: the other side has none. Changes the
    buffers of `net`.
    """
    if not (ranges := _ranges(net, call, reach, draws=range(2))):
        return {}
    # two draws may move a product, such as of values and gates, to one side alone
    again = _ranges(net, call, reach, draws=range(2, 10))
    return {name: bounds for name, bounds in again.items() if name in ranges}


def _ranges(
    net: nn.Module, call: Callable[[], DiscriminatorOutput], reach: float, draws: Iterable[int]
) -> dict[str, tuple[float, float]]:
    calls = [_moved(net, call, size, draw) for draw in draws for size in (_NUDGE, -_NUDGE)]
    ranges = {}
    for name in calls[0]:
        logits = torch.stack([logits_by_name[name] for logits_by_name in calls])
        low, high = (float(value) + 0.0 for value in logits.aminmax())  # + 0: no -0
        # no logit can be below -reach, or none above reach; NaN shows nothing: all comparisons with it are false
        is_bounded = -reach <= low <= _FARTHEST or -_FARTHEST <= high <= reach
        if is_bounded and float((logits.amax(0) - logits.amin(0)).max()) > _NARROWEST:
            ranges[name] = (
                low if abs(low) <= _FARTHEST else -math.inf,
                high if abs(high) <= _FARTHEST else math.inf,
            )
    return ranges


def _range_text(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {low:.2g}"
    return f"at most {high:.2g}" if math.isinf(low) else f"from {low:.2g} to {high:.2g}"


def _functions(low: float, high: float) -> str:
    """Return which functions have about these bounds."""
    names = {
        (0, 1): "a sigmoid, softmax or clamp",
        (-1, 1): "a tanh or clamp",
        (0, math.inf): "a relu, softplus or the like",
        (-math.inf, 0): "a log-sigmoid or the like",
    }
    rounded = [bound if math.isinf(bound) else round(bound) for bound in (low, high)]
    return names.get((rounded[0], rounded[1]), "a function that bounds its values, such as a clamp")


def _moved(net: nn.Module, call: Callable[[], DiscriminatorOutput], size: float, draw: int) -> dict[str, Tensor]:
    """Return the logits by name, with a nudge of this size; dropout and other layers draw the same in every call.

    draw: number of the noise, from 0 to 9.
    """
    with torch.random.fork_rng(devices=[]):
        seed_torch(0)
        with _Nudge(net, size, draw):
            output = call()
    return {name: member.logits_B.detach().float() for name, member in output.by_name.items()}


class _Nudge(TorchFunctionMode):
    """Add noise times `size` to what operations on weights and other tensors return.

    What operations on weights alone return, such as a spectral norm, counts as a weight; operations without weights
    do not change.
    """

    def __init__(self, net: nn.Module, size: float, draw: int) -> None:
        super().__init__()
        self._size = size
        self._draw = draw
        tensors = (*net.parameters(), *net.buffers())
        self._weights = {id(tensor): (number, tensor) for number, tensor in enumerate(tensors)}

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        tensors = [*_tensors(args), *_tensors((kwargs or {}).values())]
        numbers = [self._weights[id(tensor)][0] for tensor in tensors if id(tensor) in self._weights]
        if numbers and len(numbers) == len(tensors):
            # held, so that no id is used again
            self._weights |= {id(tensor): (numbers[0], tensor) for tensor in _tensors([result])}
        return self._nudged(result, numbers[0]) if 0 < len(numbers) < len(tensors) else result

    def _nudged(self, result: object, number: int) -> object:
        """Return what an operation returned, with noise that depends on the number of its first weight alone."""
        if type(result) is tuple:  # of a recurrent layer or attention
            return tuple(self._nudged(item, number) for item in result)
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        generator = torch.Generator().manual_seed(10 * number + self._draw)
        # one direction in a sample, so that patches move together; not equally, which a softmax would ignore.
        # Of each sample another one: what two layers add may cancel out
        per_sample = (*result.shape[:1], *[1] * (result.dim() - 1))
        directions = torch.randint(2, per_sample, generator=generator) * 2 - 1
        noise = directions * (0.5 + torch.rand(result.shape, generator=generator))
        return result + self._size * noise.to(result)


def _tensors(values: Iterable[object]) -> list[Tensor]:
    """Return the tensors among values, also in lists of them."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += _tensors(value)
    return tensors
