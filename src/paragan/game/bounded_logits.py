"""Whether a discriminator can return any real number as a logit, for a notice of a trial."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.core.outputs import DiscriminatorOutput
from paragan.game.gradient_flow import REFUSALS
from paragan.game.network import CalledNetwork

_NUDGE = 1e6  # far above what any layer returns for a sample
_WIDEST = 8.0  # range of values; clamps and soft caps of logits have wider ones, which losses do not reach
_LOGITS = "and the losses take logits, any real numbers"
_NARROWEST = 0.1  # change of a logit by the nudge, below which nothing is known of it


def notice_bounded_logits(net: nn.Module, inputs: Sequence[Tensor | None], call_of: Callable[[str], str]) -> None:
    """Warn of discriminators whose logits are bounded. inputs: of D. call_of: returns the call by name, for messages.

    Changes the buffers of `net`.
    """
    called = CalledNetwork(module=net)
    ranges: dict[str, tuple[float, float]] = {}
    with suppress(*REFUSALS):  # of such values: only a notice is lost
        ranges = bounded_ranges(net, lambda: DiscriminatorOutput.of(called(*inputs)))
    for name, (low, high) in ranges.items():
        text = f"its values are from {low:.2g} to {high:.2g} for any weights; leave it out"
        warnings.warn(f"{call_of(name)} ends in {_functions(low, high)}, {_LOGITS}: {text}", stacklevel=3)


def bounded_ranges(net: nn.Module, call: Callable[[], DiscriminatorOutput]) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest logit of those discriminators whose logits are bounded, by name ("" of one alone).

    What every operation on the weights returns is moved far in both directions. If the logits then move, but not far,
    an operation after the last weight bounds them: a sigmoid, tanh or clamp, written as a module or by hand. The
    logits of an untrained D are near 0, so that their values show nothing. Changes the buffers of `net`.
    """
    calls = [_moved(net, call, size, draw) for size in (_NUDGE, -_NUDGE) for draw in (0, 1)]
    ranges = {}
    for name in calls[0]:
        logits = torch.stack([logits_by_name[name] for logits_by_name in calls])
        low, high = (float(value) for value in logits.aminmax())
        # NaN and infinite values show nothing: all comparisons with them are false
        if high - low <= _WIDEST and float((logits.amax(0) - logits.amin(0)).max()) > _NARROWEST:
            ranges[name] = (low, high)
    return ranges


def _functions(low: float, high: float) -> str:
    """Return which functions have about these bounds."""
    names = {(0, 1): "sigmoid, softmax or clamp", (-1, 1): "tanh or clamp"}
    return f"a {names.get((round(low), round(high)), 'function that bounds its values, such as a clamp')}"


def _moved(net: nn.Module, call: Callable[[], DiscriminatorOutput], size: float, draw: int) -> dict[str, Tensor]:
    """Return the logits by name, with a nudge of this size; dropout and other layers draw the same in every call.

    draw: number of the noise, 0 or 1.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with _Nudge(net, size, draw):
            output = call()
    return {name: member.logits_B.detach().float() for name, member in output.by_name.items()}


class _Nudge(TorchFunctionMode):
    """Add noise times `size` to what operations on weights and other tensors return.

    Operations on weights alone, such as a spectral norm, return weights.
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
        generator = torch.Generator().manual_seed(2 * number + self._draw)
        # one direction in a sample, so that the mean over patches moves; not equally, which a softmax would ignore.
        # Of each sample another one: what two layers add may cancel out
        per_sample = (*result.shape[:1], *[1] * (result.dim() - 1))
        directions = torch.randint(2, per_sample, generator=generator) * 2 - 1
        noise = directions * (1 + torch.randn(result.shape, generator=generator) / 2)
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
