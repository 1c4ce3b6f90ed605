"""Weights and buffers that two networks have in common, as one tensor or as two of the same memory."""

import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.printable import join_some
from paragan.game.registered_state import buffers_of


class _Span(NamedTuple):
    """Memory of a tensor on a device, from the first byte to behind the last."""

    device: str
    start: int
    end: int
    net: str
    tensor: str
    is_weight: bool


def check_separate(nets: Mapping[str, nn.Module], owner: str = "") -> None:
    """Raise `ConfigError` if two networks, by name, have memory of a weight in common; warn of a buffer.

    Buffers that are not saved are constants, which may be shared. owner: before the messages.
    """
    last: dict[tuple[str, str, bool], _Span] = {}  # by device, network and kind, the span that ends last so far
    shared: dict[tuple[str, str], set[str]] = {}  # names of buffers, by networks
    for span in sorted(span for name, net in nets.items() for span in _spans(name, net)):
        for earlier in last.values():
            if earlier.device != span.device or earlier.net == span.net or earlier.end <= span.start:
                continue
            first, second = sorted((earlier.net, span.net), key=list(nets).index)
            if earlier.is_weight or span.is_weight:
                raise ConfigError(
                    f"{owner}{first} and {second} share weights; give each separate weights, since each has an "
                    "optimiser"
                )
            shared.setdefault((first, second), set()).add(span.tensor)
        key = (span.device, span.net, span.is_weight)
        last[key] = max(last.get(key, span), span, key=lambda item: item.end)
    for (first, second), names in shared.items():
        warnings.warn(
            f"{owner}{first} and {second} share buffers ({join_some(sorted(names))}), which one of them may change, "
            "and copies and checkpoints separate; give each a layer of its own, or register constants with "
            "persistent=False",
            stacklevel=2,
        )


def _spans(name: str, net: nn.Module) -> Iterator[_Span]:
    weights = [(key, weight, True) for key, weight in net.named_parameters()]
    buffers = [(key, value, False) for key, value, is_saved in buffers_of(net) if value is not None and is_saved]
    for key, tensor, is_weight in weights + buffers:
        if tensor.layout is torch.strided and tensor.numel() and (start := tensor.data_ptr()):  # 0: without memory
            yield _Span(str(tensor.device), start, start + _num_bytes(tensor), name, key, is_weight)


def _num_bytes(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to its last, which a view may have between others."""
    sizes_and_strides = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * (1 + sum((size - 1) * stride for size, stride in sizes_and_strides))
