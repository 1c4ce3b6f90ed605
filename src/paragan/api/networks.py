"""Networks from memory as a model that `build` takes, like a file of `models/`."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

from torch import Tensor, nn

from paragan.api.object_module import class_name
from paragan.config import RunConfig
from paragan.core import from_memory
from paragan.core.capabilities import NETWORKS_FROM_MEMORY, Capability, check_capabilities, needed
from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.option_types import Choice
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.settings_tree import shorten


@dataclass(frozen=True)
class NamedGenerator:
    """Implementation of `core.network_factory.Model` for a `Trainer`, whose generator has named inputs and no D."""

    g: nn.Module

    def Generator(self, *options: Any) -> nn.Module:
        """Return a copy of the generator."""
        return copy_networks(self.g)

    def Discriminator(self, *options: Any) -> nn.Module:
        """Return no network."""
        return nn.Identity()


@dataclass(frozen=True, kw_only=True)
class Networks:
    """Implementation of `core.network_factory.Model`: every call copies one of the two networks.

    latent, num_classes: None if g has none. origin: the classes of both, for the record.
    """

    g: nn.Module
    d: nn.Module
    latent: int | None = None
    num_classes: int | None = None
    origin: tuple[str, str] = ("", "")

    def recorded_in(self, config: RunConfig) -> RunConfig:
        """Return the config with `model.name: from_memory` and the origin of both networks."""
        check_capabilities(NETWORKS_FROM_MEMORY, needed((config.grid is not None, "grid", Capability.GRID)))
        options = config.model.options
        conditional = getattr(options, "conditional", None) if self.num_classes is None else self.num_classes > 0
        if not _takes_labels(self.g):
            conditional = False
        passed = from_memory.PassedNetworks(*self.origin, self._latent(options), conditional)
        return replace(config, model=Choice(from_memory.FROM_MEMORY, passed))

    def Generator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a copy of the generator. Raises `ConfigError` if the latent length is unknown."""
        latent = self._latent(options)
        if latent is None:
            raise ConfigError(
                f"Estimator: {class_name(self.g)} has no attribute `latent`, the length of latent_var; "
                "set it, for example self.latent = 64"
            )
        return _Generator(copy_networks(self.g), latent, self._classes(options, num_classes))

    def Discriminator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a copy of the discriminator."""
        return _Discriminator(copy_networks(self.d), self._classes(options, num_classes) > 0)

    def _latent(self, options: Any) -> int | None:
        return whole_number(options, "latent") if self.latent is None else self.latent

    def _classes(self, options: Any, num_classes: int) -> int:
        """Return the number of classes of the generated labels; 0: y is None."""
        if self.num_classes is None:
            unlabelled = getattr(options, "conditional", None) is False or not _takes_labels(self.g)
            return 0 if unlabelled else num_classes
        if self.num_classes not in (0, num_classes):
            raise ConfigError(
                f"Estimator: {class_name(self.g)}.num_classes is {self.num_classes}, but the data has "
                f"{num_classes} classes; set it to {num_classes}, or to 0 for a G without labels"
            )
        return self.num_classes


class _Generator(nn.Module):
    def __init__(self, net: nn.Module, latent: int, num_classes: int) -> None:
        super().__init__()
        self.net = net
        self.latent = latent
        self.num_classes = num_classes
        self.takes_labels = _takes_labels(net)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None, condition: Tensor | None = None) -> Any:
        if condition is not None:
            raise ConfigError(
                "Estimator does not support data of pairs: model_fn(latent_var, y) has no "
                "argument for the input image; use other data"
            )
        return _call(self.net, z_BZ, y_B, self.takes_labels)


class _Discriminator(nn.Module):
    """A discriminator from memory. labelled: whether it receives labels of images."""

    def __init__(self, net: nn.Module, labelled: bool) -> None:
        super().__init__()
        self.net = net
        self.labelled = labelled
        self.takes_labels = _takes_labels(net)
        # the poster's `model_fn` returns (output, out_logit): a lone tensor may be a probability
        self.returns_logits = not hasattr(net, "model_fn")

    def forward(
        self, x_BCHW: Tensor, y_B: Tensor | None = None, condition: Tensor | None = None
    ) -> DiscriminatorOutput:
        output = _call(self.net, x_BCHW, y_B if self.labelled else None, self.takes_labels)
        is_logits = isinstance(output, Tensor) and self.returns_logits
        if is_logits or isinstance(output, DiscriminatorOutput | Mapping | list):
            return DiscriminatorOutput.of(output)
        if not isinstance(output, tuple) or len(output) != 2:
            returned = f"{len(output)} values" if isinstance(output, tuple) else f"a {type(output).__name__}"
            raise ConfigError(f"Estimator: {class_name(self.net)} returned {returned}; return (output, out_logit)")
        return DiscriminatorOutput(output[1])


def _call(net: nn.Module, x: Tensor, y_B: Tensor | None, takes_labels: bool) -> Any:
    function = getattr(net, "model_fn", net)
    return function(x, y_B) if takes_labels else function(x)


def _takes_labels(net: nn.Module) -> bool:
    """Return whether the network has an argument for y: a plain `torch.nn.Sequential` has none."""
    if hasattr(net, "model_fn"):
        return True
    parameters = inspect.signature(net.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def whole_number(owner: Any, name: str) -> int | None:
    """Return an attribute if it is an int, else None. Raises `ConfigError` for other numbers, and text."""
    value = getattr(owner, name, None)
    if isinstance(value, Number | str) and (type(value) is not int or value < 0):  # JSON has no numbers of NumPy
        kind = type(owner).__name__
        raise ConfigError(f"Estimator: the attribute {name} of {kind} is {shorten(value)}; set an integer from 0")
    return value if type(value) is int else None  # a layer may have the name
