"""Weights of published projects under the names of paragan's networks: one file with a table for each project.

It has `PROJECT`; `KNOWN_BY`, a pattern of names; and a function that yields the networks whose weights these may be,
with the settings of the model that their shapes tell. A table knows names and shapes, and no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from paragan.checkpoint.layouts import biggan_pytorch, hifigan, pix2pix
from paragan.checkpoint.layouts.names import plain_weights
from paragan.core.layout import Shape, StoredTensors

_LAYOUTS = (
    (hifigan, hifigan.hifigan_networks),
    (pix2pix, pix2pix.pix2pix_networks),
    (biggan_pytorch, biggan_pytorch.biggan_networks),
)


@dataclass(frozen=True, kw_only=True)
class ProjectWeights:
    """Tensors by the names of paragan's network. settings: of the model; `name` is the model's."""

    project: str
    tensors: StoredTensors
    settings: Mapping[str, object]


def published_weights(stored: StoredTensors, shapes: Mapping[str, Shape]) -> ProjectWeights | None:
    """Return the tensors of a known project for a network with these shapes, or None; they are read if it is one.

    Of several networks that the weights may be of, it is the one that most of them fit, at least one. A file
    with any of the network's own names is never changed.
    """
    best, most = None, 0
    layouts = () if any(name in stored for name in shapes) else _LAYOUTS
    for layout, networks in layouts:
        if not any(layout.KNOWN_BY.match(name) for name in stored):
            continue
        with suppress(RuntimeError, ValueError, LookupError):  # of shapes that the project's tensors never have
            for weights, settings in networks(plain_weights(stored)):
                tensors = StoredTensors.of(weights)
                fitting = sum(tensors.shapes.get(name) == shape for name, shape in shapes.items())
                if fitting > most:
                    best = ProjectWeights(project=layout.PROJECT, tensors=tensors, settings=settings)
                    most = fitting
    return best
