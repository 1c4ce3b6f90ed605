"""A module with its call options: autocast is a property of the network, not of the turn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.row_draws import keys_of_call
from paragan.core.skipped_state import buffer_places
from paragan.core.tree import map_tensors
from paragan.hardware.executors import CallCompiler
from paragan.layers.precision import at_least_float32
from paragan.layers.random import name_streams, row_drawing_layers, uses_random_numbers, with_keys
from paragan.layers.update_once import mixes_samples, update_once_layers


@dataclass(frozen=True)
class Calling:
    """Options of a network's calls.

    dtype: of autocast; None: that of the weights. scaled: small gradients need a loss scale (fp16).
    compiler: None: the module is called as it is.
    """

    dtype: torch.dtype | None = None
    channels_last: bool = False
    scaled: bool = False
    compiler: CallCompiler | None = None


class CalledNetwork:
    """A `Network` of one module; outputs are float32 in any computation format.

    place: where its inputs come from, in messages.
    """

    def __init__(self, *, module: nn.Module, calling: Calling = Calling(), place: str = "data") -> None:
        self.module = module
        self.place = place
        self.calling = calling
        self.mixes = mixes_samples(module)
        self.draws = uses_random_numbers(module)  # in training mode; a trial may find more (`Player.declare_draws`)
        # those that a call in another player's turn changes: `UpdateOnce` advances in its player's updates alone
        held = [id(layer._buffers) for layer in update_once_layers(module)]
        self.buffers = tuple((buffers, name) for buffers, name in buffer_places(module) if id(buffers) not in held)
        self._row_drawing = tuple(row_drawing_layers(name_streams(module)))
        self._weights = tuple(module.parameters())
        self._run: Callable[..., Any] = module if calling.compiler is None else calling.compiler(module)

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Call the module without trailing `None` inputs. Raises `ConfigError` for labels that it has no row for."""
        while inputs and inputs[-1] is None:  # `nn.Sequential` takes one input
            inputs = inputs[:-1]
        try:
            return self._called(*inputs)
        except (IndexError, RuntimeError, TypeError) as error:
            from paragan.game.input_problem import input_problem

            if problem := input_problem(self.module, inputs, error):
                raise ConfigError(f"{self.place}: {problem}") from error
            raise

    def _called(self, *inputs: Tensor | None) -> Any:
        if not inputs:
            return self._run()  # whose error names the argument that is missing
        if self.calling.channels_last:
            inputs = tuple(_channels_last(x) for x in inputs)
        first = next(x for x in inputs if x is not None)
        draws = bool(self._row_drawing)
        with with_keys(self._row_drawing, keys_of_call(len(first), first.device)) if draws else nullcontext():
            if self.calling.dtype is None:
                return self._run(*inputs)
            with torch.autocast(first.device.type, self.calling.dtype):
                outputs = self._run(*inputs)
        return map_tensors(at_least_float32, outputs)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Disable gradients of the weights; must enclose the forward. Always restored."""
        trainable = [p for p in self._weights if p.requires_grad]
        for parameter in trainable:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in trainable:
                parameter.requires_grad_(True)


def _channels_last(x: Tensor | None) -> Tensor | None:
    return x.contiguous(memory_format=torch.channels_last) if x is not None and x.dim() == 4 else x
