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
        made = Prior(seed=config.seed, latent=model.latent, num_classes=0, device=device, dtype=model.dtype)
        return replace(made, arguments=model.arguments, generator_arguments=model.generator_arguments)
    generator = nets[Side.G]
    sample = sample_name(config, model)
    if sample is None:
        classes = int(getattr(generator, "num_classes", found.num_classes))
        return Prior(seed=config.seed, latent=latent_of(generator), num_classes=classes, device=device)
    tensors = found.train.tensors
    of_g = generator_arguments(generator, tensors)
    return Prior(
        seed=config.seed,
        latent=latent_of(generator),
        num_classes=0,
        device=device,
        arguments=discriminator_arguments(nets[Side.D], tensors, sample),
        generator_arguments=of_g,
    )
