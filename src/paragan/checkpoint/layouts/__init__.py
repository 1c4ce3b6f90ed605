"""Weights of published projects under the names of paragan's networks: one file with a table for each project.

It has `PROJECT`; `KNOWN_BY`, a pattern of names; and `networks`. That yields one `ProjectWeights` for each network
that the weights may be of, with the settings of its model that follow from their shapes: a `conv_pre.weight` of
(512, 80, 7) is of a HiFi-GAN with `width` 512 and `n_mels` 80. It constructs no network.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from paragan.checkpoint.layouts._names import ProjectWeights as ProjectWeights, Weights, plain_weights
from paragan.core.errors import ConfigError
from paragan.core.layout import Shape, StoredTensors, shapes_of
from paragan.core.types import Side


class ProjectLayout(Protocol):
    """A file of this folder. PROJECT: for messages. KNOWN_BY: matches the start of a name in its files."""

    PROJECT: str
    KNOWN_BY: re.Pattern[str]
    networks: Callable[[Weights], Iterator[ProjectWeights]]


@cache
def project_layouts() -> tuple[ProjectLayout, ...]:
    """Return the files of this folder; those with `_` in front are parts of them."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return tuple(cast("ProjectLayout", import_module(f"{__name__}.{name}")) for name in names)


def possible_weights(stored: StoredTensors) -> Iterator[ProjectWeights]:
    """Yield what the tensors of a known project may be; they are read if it is one."""
    if any(0 in shape for shape in stored.shapes.values()):
        return  # no project has empty tensors, whose other sizes could be any number
    for layout in project_layouts():
        if any(layout.KNOWN_BY.match(name) for name in stored):
            # errors of shapes that the project's tensors never have, and of image sizes that no model has; a mistake
            # in a layout raises them, too, and is found by its tests, which open weights of the project
            with suppress(RuntimeError, ValueError, LookupError, TypeError, ConfigError):
                yield from layout.networks(plain_weights(stored))


def published_weights(
    stored: StoredTensors, shapes: Mapping[str, Shape], side: Side | None = None, model: str = ""
) -> ProjectWeights | None:
    """Return the tensors of a known project for a network with these shapes, or None; they are read if it is one.

    Of several networks that the weights may be of, it is the one that most of them fit, at least one; of equal ones
    that of `model`. side: of the network; None: either. A file with any of the network's own names is never changed.
    """
    if any(name in stored for name in shapes):
        return None
    best = None
    best_fit = (0, False)
    for weights in possible_weights(stored):
        stored_shapes = shapes_of(weights.tensors)
        num_fitting = sum(stored_shapes.get(name) == shape for name, shape in shapes.items())
        fit = (num_fitting, weights.settings.get("name") == model)
        if num_fitting and fit > best_fit and side in (None, weights.side):
            best = weights
            best_fit = fit
    return best
