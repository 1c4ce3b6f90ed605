"""Construction of the networks of a config, with the weights of step 0."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paragan.build.data import has_outside_networks, sample_name
from paragan.config import RunConfig
from paragan.core import registry, rng
from paragan.core.errors import ConfigError
from paragan.core.network_factory import Model, NetworkFactory, construct_network
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.source import Source
from paragan.core.tensor_game import TensorGame
from paragan.core.types import Side
from paragan.game.named_inputs import with_named_inputs
from paragan.game.options import PlayerOptions
from paragan.game.prior import latent_of
from paragan.game.trained_part import add_adapters, check_saved, check_trains, select_trained
from paragan.hardware import precision
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates

_NUM_EXAMPLES = 2


def network_factory(
    config: RunConfig, side: Side, source: Source, device: torch.device, model: Model | None = None
) -> NetworkFactory:
    """Return the factory of one side's network with its weights of step 0, equal on any rank.

    source: has the shapes and the classes. model: networks from memory, instead of the file `config.model.name`, with
    the same options.
    """
    options = config.player_options[side.value]
    outside = has_outside_networks(config, model)
    module = model or registry.load_chosen("models", config.model)
    sample = sample_name(config, model)
    network_class = _class_of(module, side, config.model.name)
    label = f"model: {'' if model else f'{config.model.name}.'}{network_class.__name__}"
    if isinstance(model, TensorGame):
        new_network = partial(model.network, side)
    else:
        new_network = partial(_new_network, network_class, config, side, source, sample)

    fill = partial(initialise, seed=config.seed, stream=side.value)

    def construct() -> nn.Module:
        # Constructors of outside networks draw from the global generator.
        with torch.random.fork_rng(devices=[]):
            rng.seed_torch(rng.key(config.seed, "construct", side.value))
            with reraise_as_config_error(f"{label}(options, shape, num_classes)") if outside else nullcontext():
                net = new_network()
        if not isinstance(net, nn.Module):
            raise ConfigError(f"{label} is not a torch.nn.Module; derive the class from it")
        net = with_part(net, side, options)
        if precision.wants_channels_last(options.channels_last, net):
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if outside:
            fill(net)  # without `weight_init` the weights of the constructor stay
        return hold_updates(net)

    has_known_inputs = sample is None and not outside and not side.is_extra
    inputs = partial(_example_inputs, side, source) if has_known_inputs else None
    # Only a network of ours can be filled by shard: one from outside has its weights when it is constructed.
    return NetworkFactory(construct, None if outside else fill, device, inputs)


def _class_of(model: Any, side: Side, name: str) -> Any:
    """Return the class of a player's network; that of an extra player is in `players` of its model."""
    if isinstance(model, TensorGame) or not side.is_extra:
        return model.Generator if side is Side.G else model.Discriminator
    extra_players = getattr(model, "players", {})
    if side.value not in extra_players:
        names = f"has only {', '.join(extra_players)}" if extra_players else "has none"
        raise ConfigError(
            f"players.{side.value}: model {name} {names}; leave it out, or add its class to `players` of the model"
        )
    return extra_players[side.value]


def _new_network(
    network_class: Callable[..., nn.Module], config: RunConfig, side: Side, source: Source, sample: str | None
) -> nn.Module:
    """Return a new network of the class. sample: name of the tensor that G generates; None for images."""
    shape: Any = source.shape if sample is None else source.tensors[sample].shape
    num_classes = len(source.class_names)
    net = construct_network(network_class, config.model.options, shape, num_classes, source.condition_channels)
    return with_named_inputs(net, source.tensors, sample) if sample is not None and side is Side.D else net


def with_part(net: nn.Module, side: Side, options: PlayerOptions) -> nn.Module:
    """Add the adapters of a player's options to its network, and let only its part train.

    Raises `ConfigError` if no weight is left that trains.
    """
    if options.adapter is not None:
        adapter_class = registry.load_module("adapters", options.adapter.name).Adapter
        adapter_options = options.adapter.options
        add_adapters(net, partial(adapter_class, options=adapter_options), adapter_options.match, side.value)
    if options.trains_part:
        select_trained(net, options.train, options.freeze, side.value)
    check_trains(side.value, net)
    check_saved(side.value, net)
    return net


def _example_inputs(side: Side, source: Source, net: nn.Module) -> tuple[Tensor | None, ...]:
    """Return the arguments of a network of images for two samples, on the meta device."""
    shape = (_NUM_EXAMPLES, *source.shape)
    labels = torch.empty(_NUM_EXAMPLES, dtype=torch.int64, device="meta") if source.class_names else None
    channels = source.condition_channels
    condition = torch.empty((_NUM_EXAMPLES, channels, *shape[2:]), device="meta") if channels is not None else None
    first = torch.empty((_NUM_EXAMPLES, latent_of(net)) if side is Side.G else shape, device="meta")
    return first, labels, condition
