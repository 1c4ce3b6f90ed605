"""Layers that draw random numbers in a forward; the caller seeds the generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

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
        mask = draw_like(lambda h: torch.empty(h.shape, device=h.device).bernoulli_(1 - self.p), h)
        return h.mul_(mask.div_(1 - self.p).to(h.dtype))


def draw_like(make: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """Return random numbers that `make` draws from torch's global generator.

    make: is called with `like`, of which it may read shape, dtype and device alone. In a stacked
    call of the networks of several cells it is called for each cell, with the cell's generator.
    """
    drawn: Tensor = make(like) if CellGenerators.active is None else _DrawByCell.apply(like.detach(), make)
    return drawn


class CellGenerators:
    """States of torch's global generators for each of `num` cells whose networks are called as one.

    active: by which `draw_like` draws now.
    """

    active: ClassVar[CellGenerators | None] = None

    def __init__(self, num: int, device: torch.device) -> None:
        self._device = device
        self.states = [self._now()] * num

    def seed(self, keys: Sequence[int]) -> None:
        """Seed the generators of each cell."""
        for cell, key in enumerate(keys):
            torch.manual_seed(key)
            self.states[cell] = self._now()

    @contextmanager
    def of(self, cell: int) -> Iterator[None]:
        """Draw as one cell inside the block, from where its last block ended."""
        on_host, on_device = self.states[cell]
        torch.set_rng_state(on_host)
        if on_device is not None:
            torch.get_device_module(self._device).set_rng_state(on_device, self._device)
        yield
        self.states[cell] = self._now()

    @contextmanager
    def stacked(self) -> Iterator[None]:
        """Let `draw_like` draw for each cell inside the block, under one `vmap` over the cells."""
        CellGenerators.active = self
        try:
            yield
        finally:
            CellGenerators.active = None

    def _now(self) -> tuple[Tensor, Tensor | None]:
        on_host = torch.get_rng_state()
        if self._device.type == "cpu":
            return on_host, None
        return on_host, torch.get_device_module(self._device).get_rng_state(self._device)


class _DrawByCell(torch.autograd.Function):
    """Draws of each cell, by `vmap` over the cells."""

    @staticmethod
    def forward(like: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        return make(like)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing: draws have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, like: Tensor, make: Callable[[Tensor], Tensor]) -> tuple[Tensor, int]:
        generators = CellGenerators.active
        assert generators is not None
        drawn = []
        for cell, one in enumerate(like.unbind(in_dims[0])):
            with generators.of(cell):
                drawn.append(make(one))
        return torch.stack(drawn), 0


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
