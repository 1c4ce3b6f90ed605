"""Networks of many cells as one: their weights are rows of one matrix, for a single call.

The rows of a batch belong to the first cell, then to the second, and so on, equally many of each.
The networks of the cells remain usable: their weights become views, so that optimisers, averages
and genomes work as before.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from paragan.coevolution.executors.batched_linear import with_batched_linear
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput


class StackedNetwork(nn.Module):
    """Stack of networks that differ only in their weights and have no buffers.

    rows: of each network in a batch, or a divisor of their number. `vmap` calls the network for
    each cell. If all weights belong to linear layers, and a first call shows that rows are
    independent, it is called on all rows at once instead, which is faster on a CPU.
    """

    def __init__(self, nets: Sequence[nn.Module], rows: int) -> None:
        super().__init__()
        self.num = len(nets)
        self.rows = rows
        # in a tuple: its weights must not be registered
        self._template = (copy.deepcopy(nets[0]).requires_grad_(False),)
        named = [dict(net.named_parameters()) for net in nets]
        self._names = list(named[0])
        weights = [list(of.values()) for of in named]
        flat = ([weight.detach().reshape(-1) for weight in of] for of in weights)
        self.flat_CP = torch.stack(list(map(torch.cat, flat)))
        parts = self.flat_CP.split([weight.numel() for weight in weights[0]], dim=1)
        pairs = zip(parts, weights[0], strict=True)
        self.weights = nn.ParameterList(part.unflatten(1, weight.shape) for part, weight in pairs)
        self._in_order = tuple(self.weights)  # iterating over a ParameterList is slow
        for cell, of in enumerate(weights):
            for weight, stacked in zip(of, self._in_order, strict=True):
                weight.data = stacked.data[cell]
        by_name = self._parameters_by_name()
        self._whole = (with_batched_linear(self._template[0], by_name, self.num),)
        self._is_row_wise: dict[int, bool] = {}  # whether one call suffices, by number of rows

    def forward(self, *inputs: Tensor | None) -> Any:
        given = [self._by_cell(value) for value in inputs if value is not None]
        output = self._at_once(given) if self._can_at_once(given) else self._mapped(given)
        if isinstance(output, tuple):
            logits, *layers = map(self._by_row, output)
            return DiscriminatorOutput(logits, layers[0] if len(layers) == 1 else layers or None)
        return self._by_row(output)

    def gradients(self, cell: int) -> list[Tensor | None]:
        """Return the gradients of one cell's weights, in their order."""
        gradients = (weight.grad for weight in self._in_order)
        return [None if gradient is None else gradient[cell] for gradient in gradients]

    def gradient(self) -> Tensor:
        """Return the gradients of all weights, (C, P); zero for unused ones."""
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)

    def _parameters_by_name(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self.weights, strict=True))

    def _mapped(self, given: Sequence[Tensor]) -> Any:
        one_per_cell = vmap(self._one, (0, *(0 for _ in given)), randomness="error")
        return one_per_cell(self._parameters_by_name(), *given)

    def _one(self, weights: dict[str, Tensor], *inputs: Tensor) -> Any:
        """Call the network of one cell; tensors in and out, as `vmap` requires."""
        return _as_tensors(functional_call(self._template[0], weights, inputs))

    def _at_once(self, given: Sequence[Tensor]) -> Any:
        (whole,) = self._whole
        assert whole is not None
        output = _as_tensors(whole(*(value.flatten(0, 1) for value in given)))
        if isinstance(output, tuple):
            return tuple(value.unflatten(0, (self.num, -1)) for value in output)
        return output.unflatten(0, (self.num, -1))

    @torch.no_grad()
    def _can_at_once(self, given: Sequence[Tensor]) -> bool:
        """Whether one call on all rows is possible; checked once for each number of rows."""
        device = given[0].device.type
        if self._whole[0] is None or device != "cpu" or torch.is_autocast_enabled(device):
            return False
        if (count := given[0].shape[1]) not in self._is_row_wise:
            self._is_row_wise[count] = _are_close(self._at_once(given), self._mapped(given))
        return self._is_row_wise[count]

    def _by_cell(self, value: Tensor) -> Tensor:
        """Reshape (k C B, …) to (C, k B, …); k is 2 where real and fake images are concatenated."""
        return value.unflatten(0, (-1, self.num, self.rows)).transpose(0, 1).flatten(1, 2)

    def _by_row(self, value: Tensor) -> Tensor:
        return value.unflatten(1, (-1, self.rows)).transpose(0, 1).flatten(0, 2)


def _as_tensors(output: Any) -> Any:
    """Return the output of a network as a tensor or a tuple of tensors."""
    if isinstance(output, (DiscriminatorOutput, tuple, Mapping, list)):
        one = DiscriminatorOutput.of(output).single("a grid")
        return (one.logits_B, *one.layers)
    return output.images if isinstance(output, GeneratorOutput) else output


def _are_close(a: Any, b: Any) -> bool:
    """Whether two outputs are equal up to rounding."""
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else ((a, b),)
    return all(x.shape == y.shape and torch.allclose(x, y, 1e-3, 1e-4) for x, y in pairs)
