"""Construction of the prior of a config: what is drawn for G, and the names of both networks' inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from paragan.build.data import Data, sample_name
from paragan.config import RunConfig
from paragan.core.network_factory import Model
from paragan.core.tensor_game import TensorGame
from paragan.core.types import Side
from paragan.game.named_inputs import discriminator_arguments, generator_arguments
from paragan.game.prior import Prior, latent_of


def prior(
    config: RunConfig, found: Data, device: torch.device, nets: Mapping[Side, nn.Module], model: Model | None = None
) -> Prior:
    """Return the prior of a run; outside networks may leave the number of classes to the data.

    nets: G, and D for other samples than images.
    """
    if isinstance(model, TensorGame):
        made = Prior(config.seed, model.latent, 0, device, model.dtype)
        return replace(made, arguments=model.arguments, generator_arguments=model.generator_arguments)
    generator = nets[Side.G]
    sample = sample_name(config, model)
    if sample is None:
        classes = int(getattr(generator, "num_classes", found.num_classes))
        return Prior(config.seed, latent_of(generator), classes, device)
    tensors = found.train.tensors
    arguments = discriminator_arguments(nets[Side.D], tensors, sample)
    of_g = generator_arguments(generator, tensors)
    return Prior(config.seed, latent_of(generator), 0, device, arguments=arguments, generator_arguments=of_g)
