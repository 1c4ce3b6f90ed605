"""Times of operators on their real shapes, in turns with other layouts of the same operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from paragan.hardware.executors import synchronized_time
from paragan.layers.operator_call import OperatorCall, can_use_taps, run_padded, run_taps
from paragan.scaling.operator_record import Operator

_ROUNDS = 5
_MOST_WORK = 6  # of a padded product, in the work of the plain one
_SAMPLE_S = 0.002  # least time of a sample: clocks and caches are too coarse for less

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Variant:
    """Layout of one operator: padded channels, or taps as outputs; neither: as written."""

    pad: tuple[int, int] | None = None
    taps: bool = False

    def run(self, call: OperatorCall) -> Tensor:
        """Compute a call with this layout."""
        if self.taps:
            return run_taps(call)
        return call.run() if self.pad is None else run_padded(call, *self.pad)

    def channels(self, operator: Operator) -> tuple[int, int]:
        """Return the channels of input and output of the product that is computed."""
        if self.pad is not None:
            return self.pad
        height, width = operator.taps if self.taps else (1, 1)
        return operator.inputs, operator.outputs * height * width


AS_WRITTEN = Variant()


@dataclass(frozen=True)
class Place:
    """Where and how operators run. dtype: of autocast. weight_dtype: of the weights."""

    device: torch.device
    dtype: torch.dtype | None = None
    channels_last: bool = False
    weight_dtype: torch.dtype = torch.float32


_cache: dict[tuple[Place, Operator, Variant], float] = {}


def variants(operator: Operator, multiples: tuple[int, ...]) -> tuple[Variant, ...]:
    """Return the layouts of an operator to be measured, as written first.

    Channels grow to one of the multiples, of input, output or both, if that is at most six times the
    work; taps are tried for convolutions with fewer outputs than the smallest multiple.
    """
    found = [AS_WRITTEN]
    pads: dict[tuple[int, int], None] = {}
    if dict(operator.settings).get("groups", 1) == 1:
        for multiple in multiples:
            inputs = -(-operator.inputs // multiple) * multiple
            outputs = -(-operator.outputs // multiple) * multiple
            pads |= dict.fromkeys(
                ((inputs, outputs), (inputs, operator.outputs), (operator.inputs, outputs)),
            )
    pads.pop((operator.inputs, operator.outputs), None)
    found += [Variant(pad) for pad in pads if pad[0] * pad[1] <= _MOST_WORK * operator.inputs * operator.outputs]
    call = _call(operator, Place(torch.device("meta")))
    if operator.outputs < multiples[0] and can_use_taps(call):
        found.append(Variant(taps=True))
    return tuple(found)


def time_operator(
    operator: Operator, place: Place, options: tuple[Variant, ...], deadline_s: float
) -> dict[Variant, float]:
    """Return the least seconds of a forward and backward pass of each layout.

    They are stored by device, format and shape for later calls. deadline_s: of `time.perf_counter`;
    after it each is measured once.
    """
    open_ones = [one for one in options if (place, operator, one) not in _cache]
    if open_ones:
        call = _call(operator, place)
        works = {one: _work(one, call, operator, place) for one in dict.fromkeys((AS_WRITTEN, *open_ones))}
        for one, seconds in least_seconds(works, place.device, deadline_s).items():
            _cache[(place, operator, one)] = seconds
    return {one: _cache[(place, operator, one)] for one in options}


def least_seconds(
    works: Mapping[Key, Callable[[], object]], device: torch.device, deadline_s: float
) -> dict[Key, float]:
    """Return the least seconds of each work; all of them in turns, in a few rounds."""
    repeats = {}
    for key, work in works.items():
        work()
        repeats[key] = max(1, round(_SAMPLE_S / max(_seconds(work, 1, device), 1e-6)))
    found: dict[Key, float] = {}
    for _ in range(_ROUNDS):
        for key, work in works.items():
            found[key] = min(found.get(key, float("inf")), _seconds(work, repeats[key], device))
        if time.perf_counter() > deadline_s:
            break
    return found


def _seconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    began = synchronized_time(device)
    for _ in range(repeats):
        work()
    return (synchronized_time(device) - began) / repeats


def _call(operator: Operator, place: Place) -> OperatorCall:
    x = random_tensor(operator.x, place).requires_grad_(operator.x_grad)
    weight = random_tensor(operator.weight, place).requires_grad_(operator.weight_grad)
    bias = None
    if operator.has_bias:
        shape = (operator.outputs,)
        bias = random_tensor(shape, place).requires_grad_(operator.weight_grad)
    return OperatorCall(operator.name, x, weight, bias, dict(operator.settings))


def random_tensor(shape: tuple[int, ...], place: Place) -> Tensor:
    """Return a tensor of the place's device, format and weight dtype."""
    tensor = torch.randn(shape, device=place.device, dtype=place.weight_dtype)
    is_image = place.channels_last and tensor.dim() == 4
    return tensor.contiguous(memory_format=torch.channels_last) if is_image else tensor


def _work(variant: Variant, call: OperatorCall, operator: Operator, place: Place) -> Callable[[], object]:
    tensors = (call.x, call.weight, call.bias)
    return differentiated_call(lambda: [variant.run(call)], [one for one in tensors if one is not None], place)


def differentiated_call(run: Callable[[], list[Tensor]], tensors: list[Any], place: Place) -> Callable[[], object]:
    """Return a function that runs forward, and backward to those tensors that require gradients."""
    wanted = [one for one in tensors if one.requires_grad]
    ones: list[Tensor] = []

    def work() -> None:
        with (
            torch.set_grad_enabled(bool(wanted)),
            torch.autocast(place.device.type, place.dtype, enabled=place.dtype is not None),
        ):
            outputs = run()
        if wanted:
            ones.extend(map(torch.ones_like, outputs[len(ones) :]))
            torch.autograd.grad(outputs, wanted, ones)

    return work
