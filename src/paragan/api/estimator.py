"""Networks from memory: objects with `model_fn`, or plain modules, that the library trains.

`build` uses them as it uses a file of `models/` (`core.network_factory.Model`).
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from paragan.config import RunConfig
from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Choice
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.outside_code import reraise_as_config_error
from paragan.layers.modes import train

_SIGNATURES = {"g": "model_fn(latent_var, y)", "d": "model_fn(x, y)"}


class Estimator:
    """A generator and a discriminator from memory, trained together (the ParaGAN poster, figure 5).

    g: an object with `model_fn(latent_var, y)`, which returns images in [-1, 1]. d: one with
    `model_fn(x, y)`, which returns (output, out_logit): losses read out_logit, one for each image
    or a map of them; output is ignored. latent_var is (B, latent); y is (B,) of classes, or None.
    The objects hold networks in attributes, or are `torch.nn.Module`s themselves; a module without
    `model_fn` is called, D may then return the logits alone, and a `forward` of one argument
    receives no y. The length of latent_var and the number of classes (0: y is None) are `g.latent`
    and `g.num_classes`; if g has none, those of `model.latent` and `model.conditional` in the
    config, and the data.

    Training starts from their weights at the first step (on several ranks: those of rank 0) and
    works on copies: g and d are unchanged. Raises `ConfigError` for invalid objects.
    """

    def __init__(self, g: Any, d: Any) -> None:
        for name, player in (("g", g), ("d", d)):
            if isinstance(player, type):
                cls = player.__name__
                raise ConfigError(f"Estimator: {name} is the class {cls}; pass an object, {cls}()")
            has_model = callable(getattr(player, "model_fn", None))
            if not has_model and not isinstance(player, nn.Module):
                raise ConfigError(
                    f"Estimator: {name}: {type(player).__name__} is not a torch.nn.Module and has "
                    f"no {_SIGNATURES[name]}; define it"
                )
        self.g = g
        self.d = d

    def networks(self, world: World = ALONE) -> Networks:
        """Return copies of both networks, on the CPU. Collective: every rank must call this."""
        with reraise_as_config_error("Estimator: a copy of g and d"):
            g, d = copy.deepcopy((self.g, self.d))
            nets = _network(g), _network(d)
        weights = [{id(weight) for weight in net.parameters()} for net in nets]
        if weights[0] & weights[1]:
            hint = "give each its own, since each has an optimiser"
            raise ConfigError(f"Estimator: g and d share weights; {hint}")
        for net in nets:
            _follow_rank_0(net, world)
        latent = _number(self.g, "latent")
        return Networks(*nets, latent, _number(self.g, "num_classes"), _origin(self.g, self.d))


@dataclass(frozen=True)
class Networks:
    """Implementation of `core.network_factory.Model`: every call copies one of the two networks.

    latent, num_classes: None if g has none. origin: the classes of both, for the record.
    """

    g: nn.Module
    d: nn.Module
    latent: int | None = None
    num_classes: int | None = None
    origin: tuple[str, str] = ("", "")

    @classmethod
    def for_sampling(cls, g: Any) -> Networks:
        """Return a generator without its discriminator."""
        g = Estimator(g, nn.Identity()).g
        with reraise_as_config_error("generator: a copy of it"):
            net = _network(copy.deepcopy(g))
        return cls(net, nn.Identity(), _number(g, "latent"), _number(g, "num_classes"))

    def recorded_in(self, config: RunConfig) -> RunConfig:
        """Return the config with `model.name: from_memory` and the origin of both networks."""
        if config.grid is not None:
            hint = "put them in a module and set model.name"
            raise ConfigError(f"grid is not available for networks from memory; {hint}")
        before = config.model.options
        options = registry.options("models", registry.FROM_MEMORY)
        latent = _number(before, "latent") if self.latent is None else self.latent
        conditional = getattr(before, "conditional", None) if self.num_classes is None else self.num_classes > 0
        conditional = conditional if _takes_labels(self.g) else False
        chosen = options(*self.origin, latent, conditional)
        return replace(config, model=Choice(registry.FROM_MEMORY, chosen))

    def Generator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a copy of the generator. Raises `ConfigError` if the latent length is unknown."""
        latent = _number(options, "latent") if self.latent is None else self.latent
        if latent is None:
            raise ConfigError(
                f"Estimator: {_name(self.g)} has no attribute `latent`, the length of latent_var; "
                "set it, for example self.latent = 64"
            )
        return _Generator(copy.deepcopy(self.g), latent, self._classes(options, num_classes))

    def Discriminator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        """Return a copy of the discriminator."""
        return _Discriminator(copy.deepcopy(self.d), self._classes(options, num_classes) > 0)

    def _classes(self, options: Any, num_classes: int) -> int:
        """Return the number of classes of the generated labels; 0: y is None."""
        if self.num_classes is None:
            unlabelled = getattr(options, "conditional", None) is False or not _takes_labels(self.g)
            return 0 if unlabelled else num_classes
        if self.num_classes not in (0, num_classes):
            raise ConfigError(
                f"Estimator: {_name(self.g)}.num_classes is {self.num_classes}, but the data has "
                f"{num_classes} classes; set that, or 0"
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
        return _called(self.net, z_BZ, y_B, self.takes_labels)


class _Discriminator(nn.Module):
    """A discriminator from memory. labelled: whether it receives labels of images."""

    def __init__(self, net: nn.Module, labelled: bool) -> None:
        super().__init__()
        self.net = net
        self.labelled = labelled
        self.takes_labels = _takes_labels(net)
        self.returns_logits = not hasattr(net, "model_fn")

    def forward(
        self, x_BCHW: Tensor, y_B: Tensor | None = None, condition: Tensor | None = None
    ) -> DiscriminatorOutput:
        output = _called(self.net, x_BCHW, y_B if self.labelled else None, self.takes_labels)
        if isinstance(output, DiscriminatorOutput):
            return output
        if isinstance(output, Tensor) and self.returns_logits:
            return DiscriminatorOutput(output)
        if not isinstance(output, tuple) or len(output) != 2:
            is_tuple = isinstance(output, tuple)
            returned = f"{len(output)} values" if is_tuple else f"a {type(output).__name__}"
            hint = "return (output, out_logit)"
            raise ConfigError(f"Estimator: {_name(self.net)} returned {returned}; {hint}")
        return DiscriminatorOutput(output[1])


class _Object(nn.Module):
    """A module for an object with `model_fn`, whose networks and weights are registered here."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self._held = held
        for name, value in vars(held).items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, nn.Module):
                self.add_module(name, value)
        _refuse_unseen(self, held)

    def model_fn(self, *inputs: Tensor | None) -> Any:
        # strategies may have replaced them
        vars(self._held).update(self._modules | self._parameters)
        return self._held.model_fn(*inputs)


def _network(player: Any) -> nn.Module:
    net = player if isinstance(player, nn.Module) else _Object(player)
    if any(is_lazy(weight) for weight in net.parameters()):
        found = f"{_name(net)} has a lazy layer of unknown size"
        raise ConfigError(f"Estimator: {found}; call the network once before")
    if not any(weight.requires_grad for weight in net.parameters()):
        hint = "assign networks to its attributes: self.net = …"
        raise ConfigError(f"Estimator: {_name(net)} has no weights to train; {hint}")
    return train(net.cpu())


def _refuse_unseen(net: _Object, held: Any) -> None:
    """Raise `ConfigError` for weights in a list, another object or the class: never trained."""
    seen = {id(weight) for weight in net.parameters()}
    kinds = (nn.Module, nn.Parameter)
    on_class: dict[str, Any] = {}
    for kind in reversed(type(held).__mro__):
        on_class |= {name: value for name, value in vars(kind).items() if isinstance(value, kinds)}
    for name, value in {**on_class, **vars(held)}.items():
        if _weights_in(value) - seen:
            raise ConfigError(
                f"Estimator: {_name(net)}.{name} has weights that would not be trained; assign "
                "networks to attributes of the object, several as a torch.nn.ModuleList or "
                "ModuleDict"
            )


def _weights_in(value: Any) -> set[int]:
    """Return the ids of all trainable weights that a deep copy of the value would copy."""
    reached: dict[int, Any] = {}
    copy.deepcopy(value, reached)
    weights = [found for found in reached.items() if isinstance(found[1], nn.Parameter)]
    return {number for number, weight in weights if weight.requires_grad}


def _called(net: nn.Module, x: Tensor, y_B: Tensor | None, takes_labels: bool) -> Any:
    function = getattr(net, "model_fn", net)
    return function(x, y_B) if takes_labels else function(x)


def _takes_labels(net: nn.Module) -> bool:
    """Return whether the network has an argument for y: a plain `torch.nn.Sequential` has none."""
    if hasattr(net, "model_fn"):
        return True
    parameters = inspect.signature(net.forward).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _origin(g: Any, d: Any) -> tuple[str, str]:
    g_class = type(g)
    d_class = type(d)
    g_name = f"{g_class.__module__}.{g_class.__qualname__}"
    return g_name, f"{d_class.__module__}.{d_class.__qualname__}"


def _name(net: nn.Module) -> str:
    return type(net._held if isinstance(net, _Object) else net).__name__


def _number(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if type(value) is int else None


def _follow_rank_0(net: nn.Module, world: World) -> None:
    """Copy rank 0's weights: every rank drew different ones."""
    held = {name: value.detach() for name, value in (*net.named_parameters(), *net.named_buffers())}
    shapes = {name: [str(value.dtype), *value.shape] for name, value in held.items()}
    if any(theirs != shapes for theirs in world.gather(shapes)):
        found = "the networks differ between ranks"
        raise ConfigError(f"Estimator: {_name(net)}: {found}; create the same on all")
    for value in held.values():
        sent = value.clone(memory_format=torch.contiguous_format)
        world.broadcast_from_main([sent.view(-1).view(torch.uint8)])
        value.copy_(sent)


def instance(network: Any, seed: int) -> Any:
    """Construct a class, with weights that depend on the seed alone; return objects unchanged."""
    if not isinstance(network, type):
        return network
    with torch.random.fork_rng(devices=[]), reraise_as_config_error(f"{network.__name__}()"):
        torch.manual_seed(rng.key(seed, "construct", network.__name__))
        return network()
