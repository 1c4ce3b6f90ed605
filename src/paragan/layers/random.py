"""Layers that draw random numbers in a forward: by row, or from a generator that the caller seeds."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.tree import map_tensors


def uses_random_numbers(net: nn.Module) -> bool:
    """Return whether a training-mode forward draws, by row or from torch's global generator.

    True for dropout of every kind, and for modules with an attribute `draws = True`.
    """
    dropout = nn.modules.dropout._DropoutNd
    return any(isinstance(m, dropout) or getattr(m, "draws", False) is True for m in net.modules())


class RowDrawing(nn.Module):
    """Base of layers that draw in a training-mode forward, by row where the caller's rows are known.

    keys_B: of the rows of this call (`core.row_draws`); None: torch's global generator is drawn from. stream: of this
    layer, by its name in the network. A layer that a forward calls twice draws the same numbers in both calls.
    """

    draws = True
    keys_B: Tensor | None = None
    stream = 0

    def uniform(self, like: Tensor, *shape: int, number: int = 0) -> Tensor:
        """Return uniform numbers in [0, 1) for each row of `like`, at least float32: (B, *shape).

        number: of this draw, if a forward has several.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self.keys_B is None or len(self.keys_B) != len(like):
            return torch.rand(len(like), *shape, device=like.device).to(dtype)
        return rng.uniform_by_key(self.keys_B, self.stream + number, shape, dtype)

    def normal(self, like: Tensor, *shape: int) -> Tensor:
        """Return standard normal numbers, as `uniform`."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self.keys_B is None or len(self.keys_B) != len(like):
            return torch.randn(len(like), *shape, device=like.device).to(dtype)
        return rng.normal_by_key(self.keys_B, self.stream, shape, dtype)


class Dropout(RowDrawing):
    """Dropout (Srivastava et al. 2014) in place, with a mask that no memory layout or dtype changes."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            return h
        mask = self.uniform(h, *h.shape[1:]) >= self.p
        return h.mul_(mask.to(h.dtype).div_(1 - self.p))


def row_drawing_layers(net: nn.Module) -> list[RowDrawing]:
    """Return the layers of `net` that draw by row."""
    return [layer for layer in net.modules() if isinstance(layer, RowDrawing) and layer.draws]


def name_streams(net: nn.Module) -> nn.Module:
    """Give each layer of `net` that draws by row the stream of its name; return the net."""
    for name, layer in net.named_modules():
        if isinstance(layer, RowDrawing):
            layer.stream = rng.key(name.removeprefix("module."))  # of a wrapper such as DDP
    return net


@contextmanager
def with_keys(layers: Sequence[RowDrawing], keys_B: Tensor | None) -> Iterator[None]:
    """Have layers draw by these keys inside."""
    before = [layer.keys_B for layer in layers]
    _set_keys(layers, [keys_B] * len(layers))
    try:
        yield
    finally:
        _set_keys(layers, before)


def _set_keys(layers: Sequence[RowDrawing], keys: Sequence[Tensor | None]) -> None:
    for layer, keys_B in zip(layers, keys, strict=True):
        if layer.keys_B is not keys_B:  # dynamo recompiles, or refuses a checkpoint, where attributes are written
            layer.keys_B = keys_B


@contextmanager
def preserved_state(*modules: nn.Module) -> Iterator[None]:
    """Restore the buffers of modules, the generators of their devices and those of the host at the end."""
    layers = chain.from_iterable(module.modules() for module in modules)
    buffers = [
        (layer, name, buffer) for layer in layers for name, buffer in layer._buffers.items() if buffer is not None
    ]
    values = [buffer.clone() for _, _, buffer in buffers]
    devices = {weight.device for module in modules for weight in module.parameters() if weight.device.index is not None}
    kind = next(iter(devices)).type if devices else "cpu"
    try:
        with rng.preserved_globally(), torch.random.fork_rng(list(devices), device_type=kind):
            yield
    finally:
        for (layer, name, buffer), value in zip(buffers, values, strict=True):
            buffer.copy_(value)
            layer._buffers[name] = buffer  # a forward may have put another in its place


@torch.no_grad()
def repeats(call: Callable[[], object], net: nn.Module) -> bool:
    """Return whether two calls of `net` with equal buffers and global generators give equal tensors."""
    outputs: list[Tensor] = []  # of both calls, one after the other

    def collect(tensor: Tensor) -> Tensor:
        outputs.append(tensor)
        return tensor

    for _ in range(2):
        with preserved_state(net), rng.seeded_globally(seed=0):
            map_tensors(collect, call())
    pairs = zip(outputs[: len(outputs) // 2], outputs[len(outputs) // 2 :], strict=False)
    return all(torch.allclose(first, second, 1e-4, 1e-6, equal_nan=True) for first, second in pairs)
