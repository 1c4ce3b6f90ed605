"""Networks that never train, inside networks that do: extractors, backbones, teachers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.layout import fingerprint
from paragan.core.tree import map_tensors
from paragan.layers.precision import autocast_off


class Frozen(nn.Module):
    """A network that is called, but is no part of the module that calls it.

    Its tensors are not in `parameters`, `buffers`, `modules` or `state_dict` of the parent, so they are not stepped,
    averaged, saved, sharded or sent between ranks; the program provides them again at a resume. It is in evaluation
    mode for ever. `.to(device)` of the parent moves it, `.to(dtype)` does not change it, and copies of the parent
    share it. Gradients flow to its inputs.

    network: is changed in place: evaluation mode, no gradients, `dtype`. Give a copy of a network
    that trains elsewhere. dtype: of its weights; None: unchanged. Floating point inputs are cast to
    the weights' dtype, autocast is off inside, and floating point outputs have the dtype of the
    first floating point input. Raises `ConfigError` for weights on the meta device.
    """

    network: nn.Module

    def __init__(self, network: nn.Module, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        tensors = list(chain(network.parameters(), network.buffers()))
        if any(tensor.is_meta for tensor in tensors):
            raise ConfigError(
                f"Frozen: {type(network).__name__} has weights on the meta device, without values; construct "
                "and load it outside of the network that is constructed there"
            )
        # not as a submodule
        object.__setattr__(self, "network", network.eval().requires_grad_(False))
        self.training = False
        self.dtype = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None)
        if dtype is not None:
            self.cast(dtype)

    @property
    def device(self) -> torch.device | None:
        """The device of its weights; None without any."""
        tensors = chain(self.network.parameters(), self.network.buffers())
        return next((tensor.device for tensor in tensors), None)

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of its tensors, computed when it is read first."""
        return fingerprint(self.network.state_dict())

    def forward(self, *inputs: Any, **named: Any) -> Any:
        tensors = [x for x in (*inputs, *named.values()) if isinstance(x, Tensor)]
        result_dtype = next((x.dtype for x in tensors if x.is_floating_point()), None)
        to_weights = partial(_cast, dtype=self.dtype)
        with autocast_off(tensors[0]) if tensors else nullcontext():
            output = self.network(*map_tensors(to_weights, inputs), **map_tensors(to_weights, named))
            return map_tensors(partial(_cast, dtype=result_dtype), output)

    def cast(self, dtype: torch.dtype) -> Frozen:
        """Change the dtype of its weights, which `.to(dtype)` of a parent does not."""
        tensors = chain(self.network.parameters(), self.network.buffers())
        if any(tensor.is_floating_point() and tensor.dtype != dtype for tensor in tensors):
            self.network.to(dtype=dtype)  # only then: fake tensors, with which `paragan plan` computes, refuse it
        self.dtype = dtype
        return self

    def train(self, mode: bool = True) -> Frozen:
        """Do nothing: a frozen network stays in evaluation mode."""
        return self

    def extra_repr(self) -> str:
        return f"{type(self.network).__name__}, dtype={self.dtype}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Frozen:
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Frozen:
        """Follow a parent to another device. fn: what `nn.Module` applies to its tensors."""
        if self.device is not None:
            # `to_empty` and meta devices must not lose the values: `fn` says only where to.
            target = fn(torch.empty(0, device=self.device)).device
            if target not in (self.device, torch.device("meta")):
                self.network.to(target)
        return self


class _RegisteredFrozen(Frozen):
    """A `Frozen` whose network is a submodule."""

    def __init__(self, frozen: Frozen) -> None:
        nn.Module.__init__(self)  # not that of `Frozen`, which hides the network from `modules`
        self.network = frozen.network
        self.training = False
        self.dtype = frozen.dtype


def register_frozen_networks(net: nn.Module) -> None:
    """Make the frozen networks parts of a copy of their parent, for tools that need every weight's name."""
    for name, frozen in frozen_networks(net).items():
        net.set_submodule(name, _RegisteredFrozen(frozen))


def frozen_networks(net: nn.Module) -> dict[str, Frozen]:
    """Return the frozen networks that a network calls, by the name of the submodule."""
    return {name: module for name, module in net.named_modules() if isinstance(module, Frozen)}


def _cast(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x.to(dtype) if dtype is not None and x.is_floating_point() else x
