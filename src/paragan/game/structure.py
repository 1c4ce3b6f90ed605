"""The layers of a network as text, by which a resumed run notices that they are others with the same weights."""

import re
from collections.abc import Mapping
from contextlib import suppress

from torch import nn

from paragan.core.printable import join_some
from paragan.game.gradient_flow import REFUSALS

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions in the text of a layer, another one in each process
_MAX_NAMED = 3


def structure_of(net: nn.Module) -> dict[str, str]:
    """Return the class of each layer with its numbers, such as `LeakyReLU(negative_slope=0.2)`, by name."""
    return {name: _ADDRESS.sub("", f"{type(layer).__name__}({_numbers(layer)})") for name, layer in net.named_modules()}


def _numbers(layer: nn.Module) -> str:
    with suppress(AttributeError, *REFUSALS):  # it is the user's, and nothing else calls it
        return layer.extra_repr()
    return ""


def changed_layers(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return which layers differ, for a message; empty if none does."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    texts = [f"{name or 'itself'} was {before.get(name, 'missing')}, now {now.get(name, 'missing')}" for name in names]
    return join_some(texts, _MAX_NAMED, "; ")
