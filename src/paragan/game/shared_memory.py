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
    shared: dict[str, set[str]] = {}  # names of buffers, by networks
    for first, second in _overlaps([span for name, net in nets.items() for span in _spans(name, net)]):
        pair = " and ".join(sorted((first.net, second.net), key=list(nets).index))
        if first.is_weight or second.is_weight:
            raise ConfigError(f"{owner}{pair} share weights; give each separate weights, since each has an optimiser")
        shared.setdefault(pair, set()).add(second.tensor)
    for pair, names in shared.items():
        text = f"share buffers ({join_some(sorted(names))}): one network changes those of the other, until a resume"
        cure = "give each network its own layer, or register constants with persistent=False"
        warnings.warn(f"{owner}{pair} {text} separates them; {cure}", stacklevel=2)


def _overlaps(spans: list[_Span]) -> Iterator[tuple[_Span, _Span]]:
    """Yield spans of two networks that overlap, each with one that begins before it, or at the same byte."""
    last: dict[tuple[str, str, bool], _Span] = {}  # by device, network and kind, the span that ends last so far
    for span in sorted(spans):
        for earlier in last.values():
            if earlier.device == span.device and earlier.net != span.net and earlier.end > span.start:
                yield earlier, span
        kind = (span.device, span.net, span.is_weight)
        last[kind] = max(last.get(kind, span), span, key=lambda item: item.end)


def _spans(name: str, net: nn.Module) -> Iterator[_Span]:
    weights = [(key, weight, True) for key, weight in net.named_parameters()]
    buffers = [(key, value, False) for key, value, is_saved in buffers_of(net) if value is not None and is_saved]
    for key, tensor, is_weight in weights + buffers:
        if tensor.layout is torch.strided and tensor.numel() and (start := tensor.data_ptr()):  # 0: without memory
            device, end = str(tensor.device), start + _num_bytes(tensor)
            yield _Span(device=device, start=start, end=end, net=name, tensor=key, is_weight=is_weight)


def _num_bytes(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to its last, which a view may have between others."""
    sizes_and_strides = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * (1 + sum((size - 1) * stride for size, stride in sizes_and_strides))
