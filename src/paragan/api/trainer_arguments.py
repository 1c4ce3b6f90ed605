"""Arguments of `paragan.Trainer`, each refused in one line if it is of the wrong type."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty
from paragan.datasets._ragged import Padding
from paragan.game.trained_part import refuse_untrained
from paragan.layers.discriminators import Discriminators


def several_discriminators(nets: Mapping[Any, nn.Module]) -> Discriminators:
    """Return discriminators by name as one network."""
    for name in nets:
        if not isinstance(name, str):
            raise ConfigError(f"discriminators: the name {name!r} is no text; use one such as 'mpd'")
    return Discriminators(**nets)


def padding_of(ragged: Any, buckets: Any) -> Padding:
    """Return how tensors of different lengths are padded."""
    if ragged is not None and not isinstance(ragged, Mapping):
        hint = "pass the axis by name, such as {'audio': 1}"
        raise ConfigError(f"ragged is a {type(ragged).__name__}; {hint}")
    axes = dict(ragged or {})
    for name, axis in axes.items():
        if type(axis) is not int:
            hint = f"pass a whole number, such as {{{name!r}: 1}}"
            raise ConfigError(f"ragged: the axis of {name} is {axis!r}; {hint}")
    is_list = isinstance(buckets, Sequence) and not isinstance(buckets, str)
    if not is_list or any(type(length) is not int or length < 1 for length in buckets):
        raise ConfigError(f"buckets is {buckets!r}; pass a list of lengths, such as [256, 512]")
    return Padding(axes, tuple(sorted(buckets)))


def terms_of(terms: Any) -> tuple[Penalty, ...]:
    """Return the terms as a tuple."""
    if isinstance(terms, Sequence) and not isinstance(terms, str):
        return tuple(terms)
    raise ConfigError(f"terms is a {type(terms).__name__}; pass a list of terms: terms=[…]")


def further_networks(players: Any) -> dict[str, nn.Module]:
    """Return the networks of further players by name."""
    if players is not None and not isinstance(players, Mapping):
        hint = "pass networks by name, such as {'fake_score': net}"
        raise ConfigError(f"players is a {type(players).__name__}; {hint}")
    for name, net in (players or {}).items():
        if not isinstance(net, nn.Module):
            raise ConfigError(f"players: {name} is a {type(net).__name__}; pass a torch.nn.Module")
        refuse_untrained(f"players.{name}", net)
    return dict(players or {})


def separate_copies(
    generator: nn.Module, discriminator: nn.Module, players: Mapping[str, nn.Module]
) -> tuple[nn.Module, nn.Module, dict[str, nn.Module]]:
    """Return copies of the networks; `ConfigError` if two have a weight in common."""
    g, d, further = copy.deepcopy((generator, discriminator, dict(players)))
    owners: dict[int, str] = {}
    for name, net in [("generator", g), ("discriminator", d), *further.items()]:
        for weight in net.parameters():
            if (other := owners.setdefault(id(weight), name)) != name:
                hint = "give each separate weights, since each has an optimiser"
                raise ConfigError(f"{other} and {name} share weights; {hint}")
    return g, d, further


def settings_of(settings: Any) -> dict[str, Any]:
    """Return the settings as a dict."""
    if settings is not None and not isinstance(settings, Mapping):
        hint = "pass values by dotted key, such as {'train.batch': 16}"
        raise ConfigError(f"settings is a {type(settings).__name__}; {hint}")
    return dict(settings or {})


def checked_module(net: Any, owner: str) -> nn.Module:
    """Return a network; raise `ConfigError` if it is no module, or has no weight to train."""
    if not isinstance(net, nn.Module):
        found = f"the class {net.__name__}" if isinstance(net, type) else f"a {type(net).__name__}"
        raise ConfigError(f"{owner} is {found}; pass a torch.nn.Module")
    refuse_untrained(owner, net)
    return net
