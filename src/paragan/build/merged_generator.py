"""A generator of which a checkpoint holds only the trained part, with its base, as a plain network."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from paragan.build.initial_weights import load_base
from paragan.build.networks import with_part
from paragan.checkpoint.generator_state import GeneratorState
from paragan.checkpoint.reader import refuse_other_base
from paragan.config import RunConfig
from paragan.core.pieces import fingerprint, shapes_of
from paragan.core.types import Side
from paragan.game.state import check_same
from paragan.game.trained_part import fixed_names
from paragan.layers.adapter import merge_adapters


def merged(net: nn.Module, config: RunConfig, state: GeneratorState, say: Callable[[str], None]) -> nn.Module:
    """Load the trained part of a run into its generator, merge the adapters, and return it.

    net: as at step 0, but for `g.init`, which is read here. Raises `CheckpointError` if the base is
    not that of the training.
    """
    net = with_part(net, Side.G, config.g)
    load_base(net, Side.G, config, say)
    tensors = net.state_dict()
    base = {name: tensors.pop(name) for name in fixed_names(net)}
    refuse_other_base(state.path, state.values, Side.G.value, fingerprint(base))
    check_same(shapes_of(state.weights), shapes_of(tensors), str(state.path))
    net.load_state_dict(state.weights, strict=False)
    return merge_adapters(net)
