"""Record of the convolutions and matrix products of one step, by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.core.types import Side
from paragan.layers.operator_call import OperatorCall, bind_call
from paragan.layers.operator_layout import can_merge, is_single_layer, merge_key

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """A convolution or matrix product of certain shapes, and what its backward pass computes.

    name: of the function of torch. settings: stride, padding, … x_grad, weight_grad: whether the
    gradient of the input, of the weight is computed.
    """

    name: str
    x: Shape
    weight: Shape
    has_bias: bool
    settings: tuple[tuple[str, Any], ...]
    x_grad: bool
    weight_grad: bool

    @classmethod
    def of(cls, call: OperatorCall) -> Operator:
        """Return the operator of a call."""
        settings = tuple((key, _hashable(value)) for key, value in sorted(call.settings.items()))
        is_graph = torch.is_grad_enabled()
        grads = (is_graph and call.x.requires_grad, is_graph and call.weight.requires_grad)
        return cls(call.name, tuple(call.x.shape), tuple(call.weight.shape), call.bias is not None, settings, *grads)

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return self.x[-1 if self.name == "linear" else 1]

    @property
    def outputs(self) -> int:
        """Channels of the output."""
        return self.weight[1 if self.name.startswith("conv_transpose") else 0]

    @property
    def taps(self) -> Shape:
        """Sides of the kernel; empty for a matrix product."""
        return self.weight[2:]


@dataclass
class StepRecord:
    """Operators of one step.

    calls: how often a layer of a side computes an operator. siblings: layers of a side that always
    read the same tensor, and can be one product.
    """

    calls: Counter[tuple[Side, str, Operator]] = field(default_factory=Counter)
    siblings: dict[Side, list[tuple[str, ...]]] = field(default_factory=dict)

    def layers(self, side: Side) -> dict[str, Counter[Operator]]:
        """Return the operators of each layer of a side, with their numbers of calls."""
        found: dict[str, Counter[Operator]] = {}
        for (owner, layer, operator), count in self.calls.items():
            if owner is side:
                found.setdefault(layer, Counter())[operator] += count
        return found


@contextmanager
def record_operators(nets: Mapping[Side, nn.Module]) -> Iterator[StepRecord]:
    """Record what the networks compute in the block, whose end completes the record."""
    record = StepRecord()
    recorder = _Recorder(record)
    with ExitStack() as stack:
        for side, net in nets.items():
            for name, layer in net.named_modules():
                if is_single_layer(layer):
                    enter = layer.register_forward_pre_hook(partial(recorder.enter, side, name))
                    leave = layer.register_forward_hook(recorder.leave)
                    stack.callback(enter.remove)
                    stack.callback(leave.remove)
        stack.enter_context(recorder)
        yield record
    record.siblings = {side: recorder.siblings(side, net) for side, net in nets.items()}


class _Recorder(TorchFunctionMode):
    """Mode that counts calls of the layer that runs, and remembers which tensors are read."""

    def __init__(self, record: StepRecord) -> None:
        super().__init__()
        self._record = record
        self._running: list[tuple[Side, str]] = []
        self._readers: dict[tuple[Side, int, int], list[str]] = {}

    def enter(self, side: Side, name: str, layer: nn.Module, inputs: Sequence[Any]) -> None:
        """Start a layer."""
        self._running.append((side, name))
        if inputs and isinstance(inputs[0], Tensor):
            x = inputs[0]
            number = vars(x).setdefault("layout_number", len(self._readers))  # ids are used again, attributes are not
            self._readers.setdefault((side, number, x._version), []).append(name)

    def leave(self, *ignored: Any) -> None:
        """End the layer that runs."""
        self._running.pop()

    def siblings(self, side: Side, net: nn.Module) -> list[tuple[str, ...]]:
        """Return groups of layers that read the same tensor whenever one of them does."""
        layers = dict(net.named_modules())
        groups: set[tuple[str, ...]] = set()
        for (owner, *_), names in self._readers.items():
            kinds: dict[Any, list[str]] = {}
            for name in dict.fromkeys(names) if owner is side else ():
                kinds.setdefault(merge_key(layers[name]), []).append(name)
            groups |= {tuple(members) for members in kinds.values()}
        owners: Counter[str] = Counter()
        for group in groups:
            owners.update(group)
        alone = [group for group in sorted(groups) if all(owners[name] == 1 for name in group)]
        return [group for group in alone if can_merge([layers[name] for name in group])]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = bind_call(func, args, kwargs) if self._running else None
        if call is not None:
            self._record.calls[(*self._running[-1], Operator.of(call))] += 1
        return func(*args, **(kwargs or {}))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, (tuple, list)) else value
