"""Law "twice differentiable": the gradients of the logits at the images and of R1 are right.

Both are compared with central differences, which detect faults that raise no error: a detach on one
of two paths, or a custom backward that returns numbers without a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.types import Side
from paragan.layers.random import preserved_state
from paragan.verify.diagnosis import NetworkTraits, network_output
from paragan.verify.finding import LawResult, failed_result, passed_result
from paragan.verify.reference_run import VerifiedNetworks, network_inputs

_STEP_X = 1e-6
_STEP_W = 1e-8  # short enough that a kink (of a ReLU) in between is unlikely
_TOLERANCE = 1e-3  # relative
_DIRECTIONS = 3  # several, because one may cross a kink
_REFUSES = ("once_differentiable", "is not implemented", "does not require grad", "not have been used in the graph")


def check_double_backward(subject: VerifiedNetworks, of: NetworkTraits) -> LawResult:
    """Check the discriminator on real images."""
    net = subject.net(Side.D)
    x, *rest = network_inputs(subject, Side.D)
    assert x is not None
    x = x.requires_grad_()
    try:
        with _again(net):
            total = _logits(net, x, rest).sum()
            (gradient,) = torch.autograd.grad(total, x, create_graph=True, allow_unused=True)
            if gradient is None or not total.requires_grad:
                return failed_result(
                    "no gradient reaches the images: is there a detach or a no_grad in Discriminator.forward?"
                )
            weights = [w for w in net.parameters() if w.requires_grad]
            # first, since later calls restore buffers that the backward of batch norm reads
            slopes = torch.autograd.grad(_r1(gradient), weights, allow_unused=True) if gradient.requires_grad else None
            wrong = _first_is_wrong(net, x, rest, gradient.detach())
            if wrong > _TOLERANCE:
                reason = "the gradient at the images is not the slope of the logits: a detach or no_grad on some path?"
                return failed_result(reason + _suspects(of), wrong)
            if slopes is None:
                return failed_result("the gradient at the images has no graph" + _suspects(of))
    except RuntimeError as error:
        if any(words in str(error) for words in _REFUSES):
            return failed_result(str(error).splitlines()[0][:200] + _suspects(of))
        raise
    found = [torch.zeros_like(w) if slope is None else slope for w, slope in zip(weights, slopes, strict=True)]
    return _second(net, x, rest, found, of)


def _second(
    net: nn.Module, x: Tensor, rest: Sequence[Tensor | None], slopes: Sequence[Tensor], of: NetworkTraits
) -> LawResult:
    if not all(slope.isfinite().all() for slope in slopes):
        return failed_result("the second derivative is not finite: a square root or a norm at zero?" + _suspects(of))
    if of.torch_spectral_norms:  # its vectors change with the weights, and so would the differences
        return passed_result()
    wrong = _second_is_wrong(net, x, rest, slopes)
    if wrong > _TOLERANCE:
        return failed_result("the second derivative is not that of the first" + _suspects(of), wrong)
    return passed_result(wrong)


def _suspects(of: NetworkTraits) -> str:
    """Name the custom autograd Functions, as the likely cause."""
    if not of.custom_functions:
        return ""
    names = " and ".join(of.custom_functions)
    return f"; the network uses the autograd Function {names}: its backward must consist of differentiable operations"


@contextmanager
def _again(net: nn.Module) -> Iterator[None]:
    """Use the same random numbers every time; restore buffers and random state afterwards."""
    with preserved_state(net):
        torch.manual_seed(0)
        yield


def _logits(net: nn.Module, x: Tensor, rest: Sequence[Tensor | None]) -> Tensor:
    return network_output(Side.D, net, (x, *rest))


def _r1(gradient: Tensor) -> Tensor:
    return gradient.square().sum() / 2


def _first_is_wrong(net: nn.Module, x: Tensor, rest: Sequence[Tensor | None], gradient: Tensor) -> float:
    @torch.no_grad()
    def total(moved: float, along: Tensor) -> float:
        with _again(net):
            return float(_logits(net, x + moved * along, rest).sum())

    def one(number: int) -> float:
        along = torch.randn(x.shape, generator=rng.generator("laws/x", number))
        slope = (total(_STEP_X, along) - total(-_STEP_X, along)) / (2 * _STEP_X)
        return _relative(slope, float((gradient * along).sum()), 1e-7)

    return min(map(one, range(_DIRECTIONS)))


def _second_is_wrong(net: nn.Module, x: Tensor, rest: Sequence[Tensor | None], slopes: Sequence[Tensor]) -> float:
    weights = [w for w in net.parameters() if w.requires_grad]
    original = [w.detach().clone() for w in weights]

    def penalty(moved: float, along: Sequence[Tensor]) -> float:
        with torch.no_grad():
            for weight, value, way in zip(weights, original, along, strict=True):
                weight.copy_(value + moved * way)
        with _again(net):
            (gradient,) = torch.autograd.grad(_logits(net, x, rest).sum(), x)
        return float(_r1(gradient))

    def one(number: int) -> float:
        generator = rng.generator("laws/w", number)
        along = [torch.randn(w.shape, generator=generator) * (w.abs().mean() + 1e-3) for w in original]
        slope = (penalty(_STEP_W, along) - penalty(-_STEP_W, along)) / (2 * _STEP_W)
        expected = float(sum((s * way).sum() for s, way in zip(slopes, along, strict=True)))
        return _relative(slope, expected, 1e-5 * penalty(0.0, along))

    return min(map(one, range(_DIRECTIONS)))


def _relative(a: float, b: float, rounding: float) -> float:
    """Return the relative difference; 0 if rounding explains it."""
    return 0.0 if abs(a - b) <= rounding else abs(a - b) / max(abs(a), abs(b))
