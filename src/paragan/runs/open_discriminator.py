"""Opening of a run's discriminator, to export it."""

from __future__ import annotations

from pathlib import Path

import torch

from paragan.checkpoint import generator_state
from paragan.config import read_recipe, to_tree
from paragan.config.sections import outside_of_run
from paragan.core.errors import ConfigError
from paragan.core.layout import shapes_of
from paragan.core.network_factory import construct_network
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import print_to_stderr
from paragan.export.discriminator import ExportedDiscriminator
from paragan.game.state import check_same
from paragan.runs.open_generator import fill, generator_info, model_module
from paragan.runs.open_run import config_path


def open_discriminator(path: Path, trust: bool | CodeFolder = False, best: bool = False) -> ExportedDiscriminator:
    """Open the discriminator of a run folder at its newest or best checkpoint.

    trust: as of `paragan.load`. Raises `ConfigError` for a grid, whose cells have several, and for one of which the run
    trains only a part; `CheckpointError` as `open_generator`.
    """
    config = read_recipe(str(config_path(path)), [], outside_of_run(trust))
    if config.grid is not None or config.d.trains_part:
        reason = "trains a part of its discriminator" if config.grid is None else "is a grid and has several"
        raise ConfigError(f"export: {path} {reason}; --player d is for runs with one whole discriminator")
    module = model_module(config, None, str(path))
    state = generator_state.read_best(path, "d") if best else generator_state.read_newest(path, print_to_stderr, "d")
    info = generator_info(state)
    with torch.random.fork_rng(devices=[]):  # constructors draw random numbers
        options = config.model.options
        num_classes = len(info.class_names)
        net = construct_network(module.Discriminator, options, info.shape, num_classes, info.condition_channels)
    check_same(shapes_of(state.weights), shapes_of(net.state_dict()), str(state.path))
    fill(net, state.weights, str(state.path))
    net.eval().requires_grad_(False)
    return ExportedDiscriminator(net=net, info=info, tree=to_tree(config))
