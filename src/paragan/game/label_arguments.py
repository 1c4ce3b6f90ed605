"""Whether the networks of outside code take labels where the data has some."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.types import Side


def refuse_label_mismatch(side: Side, net: nn.Module, num_classes: int) -> None:
    """Raise `ConfigError` if `forward` takes no labels although it gets some, or the reverse."""
    forward = net.forward
    who, first = ("Generator", "z") if side is Side.G else ("Discriminator", "x")
    if _takes(forward, 2 if num_classes else 1):
        return
    code = getattr(forward, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    if not num_classes and _takes(forward, 2):
        raise ConfigError(
            f"model: {who}.forward({first}, y) needs labels, but this run has none{place}; give y "
            f"a default: forward(self, {first}, y=None)"
        )
    if num_classes and _takes(forward, 1):
        raise ConfigError(
            f"model: {who}.forward({first}) takes no labels, but the data has {num_classes} "
            f"classes{place}; accept them: forward(self, {first}, y), or set self.num_classes = 0 "
            "in the Generator, or pass data.labels=false"
        )


def _takes(forward: Any, count: int) -> bool:
    """Return whether `forward` takes `count` positional arguments; True if unknown."""
    try:
        inspect.signature(forward).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
