"""Networks of many cells as one: their weights are rows of one matrix, for a single call.

The rows of a batch belong to the first cell, then to the second, and so on, equally many of each. The networks of the
cells remain usable: their weights and buffers become views, so that optimisers, averages and genomes work as before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.extensions.grid.executors.stacked_tensors import memory_order, move_into, stack_in_place, stack_weights
from paragan.game.network import CalledNetwork
from paragan.layers.random import RowDrawing, row_drawing_layers, uses_random_numbers, with_keys
from paragan.layers.update_once import begin_update, update_once_layers

Tensors = dict[str, Tensor]


class StackedNetwork(RowDrawing):
    """Stack of networks that differ only in their weights and buffers.

    rows: of each network's batch.

    `vmap` calls the network for each cell; buffers change in place. Raises `ConfigError` if `vmap`
    refuses a first call, as of torch's dropout or of `.item()`.
    """

    def __init__(self, nets: Sequence[nn.Module], rows: int) -> None:
        super().__init__()
        self.num = len(nets)
        self.rows = rows
        # in a tuple: its weights must not be registered
        self._template = (copy_networks(nets[0]),)
        self._update_once = update_once_layers(self._template[0])
        self._row_drawing = tuple(row_drawing_layers(self._template[0]))
        self.draws = uses_random_numbers(self._template[0])
        # one memory: rows of all weights of a cell (`flat_CP`), and the stack of each weight as a view of it
        self.flat_CP, weights = stack_weights([list(net.parameters()) for net in nets])
        self.weights = nn.ParameterList(weights)
        self._in_order = tuple(self.weights)  # iterating over a ParameterList is slow
        self._memory_orders = tuple(map(memory_order, self._in_order))
        self._weights = dict(zip(dict(nets[0].named_parameters()), self._in_order, strict=True))
        self.buffers_C = stack_in_place([list(net.buffers()) for net in nets])
        self.buffers_by_name_C = dict(zip(dict(nets[0].named_buffers()), self.buffers_C, strict=True))
        self._is_mappable = False  # not known before the first call

    def forward(self, *inputs: Tensor | None) -> Any:
        # the keys of layers that draw, where there are some, and the inputs
        tensors = [self._by_cell(value) for value in (self.keys_B, *inputs) if value is not None]
        if not self._is_mappable:
            self._check_mappable(tensors)
            self._is_mappable = True
        output = self._call_mapped(tensors, self.buffers_by_name_C)
        if isinstance(output, tuple):  # of D, by `_as_tensors`
            logits, *layers = map(self._by_row, output)
            return DiscriminatorOutput(logits, layers[0] if len(layers) == 1 else layers or None)
        return self._by_row(output)

    def take_over(self, nets: Sequence[nn.Module]) -> None:
        """Take over buffers that the networks replaced by new tensors while they ran alone."""
        move_into(self.buffers_C, [list(net.buffers()) for net in nets])

    def begin_update(self) -> None:
        """Mark the layers whose state the next call advances (`layers.update_once`)."""
        # one mark for all cells, as the layers are those of the template: the stack is one call
        begin_update(self._template[0])

    def gradients(self, cell: int) -> list[Tensor | None]:
        """Return the gradients of one cell's weights, in their order."""
        gradients = (weight.grad for weight in self._in_order)
        return [None if gradient is None else gradient[cell] for gradient in gradients]

    def gradient(self) -> Tensor:
        """Return the gradients of all weights, (C, P); zero for unused ones."""
        gradients = (torch.zeros_like(w) if w.grad is None else w.grad for w in self._in_order)
        # rows of `flat_CP` are in memory order (channels last on a CPU), and so must be their gradients
        pairs = zip(gradients, self._memory_orders, strict=True)
        return torch.cat([gradient.permute(order).reshape(self.num, -1) for gradient, order in pairs], dim=1)

    def _call_mapped(self, tensors: Sequence[Tensor], buffers: Tensors) -> Any:
        # "error": a draw of torch's generator would differ from that of the same cell alone
        call_cells = vmap(self._call_cell, (0, 0, *(0 for _ in tensors)), randomness="error")
        return call_cells(self._weights, buffers, *tensors)

    def _check_mappable(self, tensors: Sequence[Tensor]) -> None:
        """Refuse a network that `vmap` cannot call; changes no state."""
        due = [layer.update_due for layer in self._update_once]
        try:
            with torch.enable_grad():  # as in training, although the first call may be one for samples
                self._call_mapped(tensors, {name: value.clone() for name, value in self.buffers_by_name_C.items()})
        except RuntimeError as error:
            problem = f"{type(self._template[0]).__name__} ({' '.join(str(error).split())[:200]})"
            raise ConfigError(
                f"stacked cells: torch.func.vmap cannot call {problem}; use grid.executor=loop"
            ) from error
        finally:
            for layer, is_due in zip(self._update_once, due, strict=True):
                layer.update_due = is_due

    def _call_cell(self, weights: Tensors, buffers: Tensors, *inputs: Tensor) -> Any:
        """Call the network of one cell; tensors in and out, as `vmap` requires."""
        keys_B = None
        if self.keys_B is not None:
            keys_B, *inputs = inputs  # type: ignore[assignment]
        tensors = {**weights, **buffers}  # where `functional_call` puts a tensor that replaces a buffer
        # keys are an input, so that each row draws as it does in the network of its cell alone
        with with_keys(self._row_drawing, keys_B):
            output = functional_call(self._template[0], tensors, tuple(inputs))
        # vmap returns no buffers: their new values (statistics of each cell) go back into the stack in place
        for name, buffer in buffers.items():
            if tensors[name] is not buffer:  # a new tensor in place of the buffer
                buffer.copy_(tensors[name].detach())
        return _as_tensors(output)

    def _by_cell(self, value: Tensor) -> Tensor:
        """Reshape (k C B, …) to (C, k B, …); k is 2 where real and fake images are concatenated."""
        return value.unflatten(0, (-1, self.num, self.rows)).transpose(0, 1).flatten(1, 2)

    def _by_row(self, value: Tensor) -> Tensor:
        """Reshape (C, k B, …) to (k C B, …)."""
        return value.unflatten(1, (-1, self.rows)).transpose(0, 1).flatten(0, 2)


def called_stack(stack: StackedNetwork, of_cell: CalledNetwork) -> CalledNetwork:
    """Return a stack as a network that is called as those of its cells, in any memory layout.

    What `CalledNetwork` reads from the layers of a module is set here: a stack does not register those of its cells.
    """
    called = CalledNetwork(module=stack, calling=replace(of_cell.calling, channels_last=False))
    called.mixes = of_cell.mixes
    called.draws = of_cell.draws
    # all of them: those of layers that advance once for an update (`update_once`) are among the stacks, too
    called.buffers = tuple((stack.buffers_by_name_C, name) for name in stack.buffers_by_name_C)
    return called


def _as_tensors(output: Any) -> Any:
    """Return the output of a network as a tensor, or as a tuple of logits and layers of D.

    Other outputs are dropped: cells have no term that reads them (`choice` refuses it).
    """
    if isinstance(output, (DiscriminatorOutput, tuple, Mapping, list)):
        single = DiscriminatorOutput.of(output).single("a grid")
        return (single.logits_B, *single.layers)
    return output.images if isinstance(output, GeneratorOutput) else output
