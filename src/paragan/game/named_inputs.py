"""Names of the tensors that networks receive, from the signatures of `forward`."""

import copy
import inspect
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TypeGuard

import numpy as np
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.settings_tree import shorten
from paragan.core.source import TensorSpec
from paragan.core.tensor_game import LATENT
from paragan.layers.discriminators import Discriminators

_DRAWN = (LATENT, "z")


def generator_arguments(net: nn.Module, tensors: Mapping[str, TensorSpec]) -> tuple[str, ...]:
    """Return the names of G's arguments: tensors of a sample, and `latent`. Raises `ConfigError`.

    The latent is the argument `latent` or `z`; else, in a network whose attribute `latent` is not 0, the only one that
    no sample has, as `input` of `nn.Sequential`: G(mel) has (mel), and G(z, mel), as G(noise, mel), has (latent, mel).
    """
    if clash := [name for name in _DRAWN if name in tensors]:
        raise ConfigError(f"data: a sample has a tensor {clash[0]!r}, the name of the latent that is drawn; rename it")
    parameters = _parameters(net, "generator", may_be_empty=True)
    length = _latent_length(net)
    drawn = _drawn_names(parameters, tensors) if length else _DRAWN
    arguments = _available(parameters, (*tensors, *drawn), "generator")
    if not arguments:
        raise ConfigError(
            f"generator: {type(net).__name__}.forward takes no arguments by name; name them after tensors of a "
            "sample, or latent"
        )
    names = tuple(LATENT if name in drawn else name for name in arguments)
    if LATENT in names and length is None:
        raise ConfigError(
            f"generator: {type(net).__name__} has no attribute `latent`, the length of {arguments[0]}; set it, for "
            "example self.latent = 64"
        )
    if names == (LATENT,) and length == 0:
        raise ConfigError(
            f"generator: {type(net).__name__}.forward takes {arguments[0]} alone, and its attribute latent is 0, which "
            "means none; set the length of the latent, for example self.latent = 64"
        )
    return names


def input_names(generator: nn.Module) -> tuple[str, ...]:
    """Return the names of all arguments of a generator; `z` is `latent`."""
    parameters = _parameters(generator, "generator", may_be_empty=True)
    return tuple(LATENT if p.name in _DRAWN else p.name for p in parameters)


def tuple_names(generator: nn.Module, discriminator: nn.Module, sample: str | None) -> tuple[str, ...]:
    """Return names of the values of a tuple: image, label, pose for D(image, label) and G(z, label, pose).

    sample: name of the first; None: that of D's argument, or `sample` where G calls its latent so: D(x) and G(x), two
    `nn.Sequential`, have (sample,), as D(x) and G(noise) have (x,).
    """
    of_g = [parameter.name for parameter in _parameters(generator, "generator", may_be_empty=True)]
    of_members = [[p.name for p in _parameters(net, "discriminator")] for net in _members(discriminator).values()]
    first = of_members[0][0]
    others = [name for names in of_members for name in names[1:]]  # the first of each is the sample
    latent = _unnamed_latent(generator, of_g, (first, *others))
    first = "sample" if first == latent else first
    others = [name for name in (*others, *of_g) if name != latent]  # it is drawn, and no value of the tuple
    return tuple(name for name in dict.fromkeys((sample or first, *others)) if name not in _DRAWN)


def _unnamed_latent(net: nn.Module, of_g: Sequence[str], of_d: Collection[str]) -> str:
    """Return the argument of G that is an unnamed latent: the first that D does not have, or the first; empty: none."""
    if not _latent_length(net) or any(name in _DRAWN for name in of_g):
        return ""
    return next((name for name in of_g if name not in of_d), of_g[0] if of_g else "")


def discriminator_arguments(net: nn.Module, tensors: Mapping[str, TensorSpec], sample: str | None) -> tuple[str, ...]:
    """Return the names of D's arguments; the first is the tensor that G generates.

    sample: name of the first one; None: that of the parameter, or of the only tensor. Those of several are merged.
    """
    return tuple(dict.fromkeys(chain.from_iterable(_by_member(net, tensors, sample).values())))


def with_named_inputs(net: nn.Module, tensors: Mapping[str, TensorSpec], sample: str | None) -> nn.Module:
    """Return D; of several discriminators a copy whose modules receive what they name."""
    if not _is_several(net):
        return net
    by_member = _by_member(net, tensors, sample)
    arguments = list(dict.fromkeys(chain.from_iterable(by_member.values())))
    named = copy.copy(net)
    named.places = {key: [arguments.index(name) for name in names] for key, names in by_member.items()}
    return named


def _by_member(net: nn.Module, tensors: Mapping[str, TensorSpec], sample: str | None) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each discriminator; the name of a single one is empty."""
    by_member = {}
    for key, member in _members(net).items():
        by_member[key] = _arguments(f"discriminator {key}".strip(), member, tensors, sample)
    first = next(iter(by_member))
    for key, names in by_member.items():
        if names[0] != by_member[first][0]:
            raise ConfigError(
                f"discriminator: the first argument of {first} is {by_member[first][0]!r}, and that of {key} "
                f"{names[0]!r}; name the tensor that G generates in both, or pass sample=NAME"
            )
    return by_member


def _members(net: nn.Module) -> dict[str, nn.Module]:
    """Return discriminators by name; the name of a single one is empty."""
    return dict(net.items()) if _is_several(net) else {"": net}


def _is_several(net: nn.Module) -> TypeGuard[Discriminators]:
    """Return whether D calls each of several discriminators; with a `forward` of its own it is one network."""
    return isinstance(net, Discriminators) and type(net).forward is Discriminators.forward


def _arguments(owner: str, net: nn.Module, tensors: Mapping[str, TensorSpec], sample: str | None) -> tuple[str, ...]:
    first, *others = _parameters(net, owner)
    name = sample or first.name
    if sample is None and name not in tensors and len(tensors) == 1:
        name = next(iter(tensors))
    if name not in tensors:
        raise ConfigError(
            f"{owner}: forward({name}, …) names the tensor that is real in a batch, and a sample has only "
            f"{', '.join(tensors)}; rename one of them, or pass sample=NAME"
        )
    return (name, *_available(others, tensors, owner))


def _latent_length(net: nn.Module) -> int | None:
    """Return the attribute `latent`, 0: none; None without one, or for a layer. `ConfigError` for another value."""
    latent = getattr(net, LATENT, None)
    if type(latent) is int and latent >= 0:  # not True for 1
        return latent
    is_number = isinstance(latent, Tensor) and not latent.dim()
    if is_number or isinstance(latent, int | float | str | tuple | list | np.generic | np.ndarray):
        raise ConfigError(
            f"generator: the attribute latent of {type(net).__name__} is {shorten(latent)}; it is the length of the "
            "latent, an integer (0: none)"
        )
    return None


def _drawn_names(parameters: list[inspect.Parameter], tensors: Collection[str]) -> tuple[str, ...]:
    """Return the names that the latent has in G: the only one that no sample has and no default, else `_DRAWN`."""
    unknown = tuple(p.name for p in parameters if p.name not in tensors and p.default is p.empty)
    is_latent = len(unknown) == 1 and not any(p.name in _DRAWN for p in parameters)
    return unknown if is_latent else _DRAWN


def _parameters(net: nn.Module, owner: str, may_be_empty: bool = False) -> list[inspect.Parameter]:
    """Return the named arguments of `forward` that can be given by position."""
    parameters = inspect.signature(net.forward).parameters.values()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if needed or not (by_position or may_be_empty):
        problem = f"takes {needed[0]!r} by keyword only" if needed else "has no named argument"
        raise ConfigError(f"{owner}: {type(net).__name__}.forward {problem}; give it arguments with names, by position")
    return by_position


def _available(parameters: list[inspect.Parameter], tensors: Collection[str], owner: str) -> list[str]:
    """Return the names that a batch has; arguments with a default may be missing at the end."""
    available: list[str] = []
    missing = ""
    for parameter in parameters:
        if parameter.name in tensors and missing:
            raise ConfigError(
                f"{owner}: forward({missing}, {parameter.name}): no sample has {missing!r}; add the tensor {missing!r} "
                "to the samples, or move it to the end"
            )
        if parameter.name in tensors:
            available.append(parameter.name)
        elif parameter.default is parameter.empty:
            names = ", ".join(name for name in tensors if name not in _DRAWN)
            hint = "rename one of them"
            if owner == "generator":
                hint += f", or give the network its length (self.latent = 64) if {parameter.name} is the latent"
            raise ConfigError(f"{owner}: forward takes {parameter.name!r}, and a sample has only {names}; {hint}")
        else:
            missing = parameter.name
    return available
