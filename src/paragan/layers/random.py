"""Layers that draw random numbers in a forward; the caller seeds the generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn


def uses_random_numbers(net: nn.Module) -> bool:
    """Return whether a training-mode forward draws from torch's global generator.

    True for dropout of every kind, and for modules with an attribute `draws = True`.
    """
    dropout = nn.modules.dropout._DropoutNd
    return any(isinstance(m, dropout) or getattr(m, "draws", False) is True for m in net.modules())


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014) in place, with a mask by generator and shape alone.

    torch's fills its mask in the order of memory, so another layout or dtype would draw another
    mask.
    """

    draws = True

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            return h
        kept = torch.empty(h.shape, device=h.device).bernoulli_(1 - self.p)
        return h.mul_(kept.div_(1 - self.p).to(h.dtype))


@contextmanager
def preserved_state(*modules: nn.Module) -> Iterator[None]:
    """Restore the buffers of modules, and the generators of their devices, at the end."""
    layers = list(chain.from_iterable(module.modules() for module in modules))
    old = [(m, {n: (b, b.clone()) for n, b in m._buffers.items() if b is not None}) for m in layers]
    weights = chain.from_iterable(module.parameters() for module in modules)
    devices = {weight.device for weight in weights if weight.device.index is not None}
    kind = next(iter(devices)).type if devices else "cpu"
    try:
        with torch.random.fork_rng(list(devices), device_type=kind):
            yield
    finally:
        for layer, buffers in old:
            for name, (buffer, value) in buffers.items():
                buffer.copy_(value)
                layer._buffers[name] = buffer  # a forward may have put another in its place
