"""Construction of the game of a config: players, prior and scheme."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from paragan.build.data import Data, check_pairs, check_samples, sample_name
from paragan.build.networks import network_factory
from paragan.build.players import player, remote_player, worker_player
from paragan.build.terms import adversarial, augmentation, balancing, penalties
from paragan.config import RunConfig, default_scheme, outside_names
from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.network_factory import Model, NetworkFactory
from paragan.core.protocols import PlayerSlot
from paragan.core.roles import Roles, colocated_roles
from paragan.core.tensor_game import TensorGame
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.named_inputs import discriminator_arguments, generator_arguments
from paragan.game.needs import check_counts, check_player
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.prior import Prior, latent_of
from paragan.game.scheme import FunctionScheme, Scheme
from paragan.game.validation import validate


def gan(
    config: RunConfig,
    data: Data,
    device: torch.device,
    roles: Roles | None = None,
    model: Model | None = None,
    turns: bool = True,
    factories: Mapping[Side, NetworkFactory] | None = None,
) -> GAN:
    """Build the player slots and their game; refuse a loss or penalty that a strategy cannot run.

    Outside code and games on named tensors are validated on a few samples, with warnings of the main rank. turns: with
    an update of each side, too. factories: build the networks, instead of those of the config, without validation.
    """
    check_samples(config, data, model)
    check_pairs(config, data, model)
    roles = colocated_roles(ALONE) if roles is None else roles
    if factories is not None:
        return _game(config, data, device, roles, model, factories)
    sides = map(Side, config.player_options)
    factories = {side: network_factory(config, side, data.train, device, model) for side in sides}
    game = _game(config, data, device, roles, model, factories)
    micro_batches = max(options.micro_batches for options in config.player_options.values())
    num_rows = max(1, config.train.batch // (roles.batch_world.size * micro_batches))
    if not data.is_image or model is not None or outside_names(config):
        # A separate pair, so that no state changes. Python forgets here what it has shown in an earlier run.
        with warnings.catch_warnings(action=None if roles.world.is_main else "ignore"):
            validate(game, factories, data.train, data.is_image, turns or not data.is_image, num_rows)
    return game


def _game(
    config: RunConfig,
    data: Data,
    device: torch.device,
    roles: Roles,
    model: Model | None,
    factories: Mapping[Side, NetworkFactory],
) -> GAN:
    options = {Side(name): player_options for name, player_options in config.player_options.items()}
    slots = _slots(options, factories, roles, config.train.executor)
    players = {side: slot for side, slot in slots.items() if isinstance(slot, Player) and roles.has(side)}
    loss = adversarial(config.loss, model)
    penalties_by_side = penalties(config, data, model)
    for side, slot in players.items():
        check_player(options[side], slot, penalties_by_side[side], loss.needs, config.loss.name)
        check_counts(side, options[side], config.train.batch, roles.batch_world)
    # The prior and the augmentation read attributes of both networks: one on other ranks is constructed for that.
    nets = {side: players[side].net if side in players else factories[side].construct() for side in Side}
    return GAN(
        g=slots[Side.G],
        d=slots[Side.D],
        loss=loss,
        prior=prior(config, data, device, nets, model),
        g_penalties=penalties_by_side[Side.G],
        d_penalties=penalties_by_side[Side.D],
        augment=augmentation(config, nets[Side.D]),
        balancer=balancing(config),
        sum_over_ranks=roles.batch_world.sum,
        extra={side: slot for side, slot in slots.items() if side.is_extra},
        extra_penalties={side: penalties_by_side[side] for side in slots if side.is_extra},
        adversarial=config.adversarial,
    )


def _slots(
    options: Mapping[Side, PlayerOptions], factories: Mapping[Side, NetworkFactory], roles: Roles, executor: str
) -> dict[Side, PlayerSlot]:
    """Return the players of this rank, and for the others what this rank needs of them: a copy, or a snapshot."""
    scales_loss = {side: player_options.precision == "fp16" for side, player_options in options.items()}
    # G's gradient passes through D: an fp16 D underflows it for any format of G.
    scales_loss[Side.G] = any(scales_loss.values())
    slots: dict[Side, PlayerSlot] = {}
    for side, player_options in options.items():
        if roles.has(side):
            slots[side] = player(side, factories[side], player_options, scales_loss[side], roles.batch_world, executor)
        elif roles.has_server:
            slots[side] = worker_player(side, factories[side], player_options, executor)
        else:
            slots[side] = remote_player(side, factories[side], player_options, roles.sends_states, executor)
    return slots


def scheme(config: RunConfig) -> Scheme:
    """Return the scheme of a run: its module's `Scheme`, or its function `step`."""
    module = registry.load_module("schemes", config.scheme.name)
    if not hasattr(module, "Scheme"):
        capabilities = getattr(module, "capabilities", FunctionScheme.capabilities)
        return FunctionScheme(module.step, capabilities, getattr(module, "simulate", None))
    scheme: Scheme = module.Scheme(config.scheme.options) if hasattr(module, "Options") else module.Scheme()
    return scheme


def with_synchronous_scheme(config: RunConfig) -> RunConfig:
    """Return the config with the default scheme in place of one whose players train at the same time."""
    if not scheme(config).is_concurrent:
        return config
    return replace(config, scheme=default_scheme())


def prior(
    config: RunConfig, data: Data, device: torch.device, nets: Mapping[Side, nn.Module], model: Model | None = None
) -> Prior:
    """Return the prior of a run; outside networks may leave the number of classes to the data.

    nets: G; and D, which is read only for samples that are not images.
    """
    new_prior = partial(Prior, seed=config.seed, device=device)
    if isinstance(model, TensorGame):
        d_arguments, g_arguments = model.discriminator_arguments, model.generator_arguments
        return new_prior(
            latent=model.latent, dtype=model.dtype, discriminator_arguments=d_arguments, generator_arguments=g_arguments
        )
    generator = nets[Side.G]
    sample = sample_name(config, model)
    if sample is None:
        classes = int(getattr(generator, "num_classes", data.num_classes))
        follows_data = config.data.options.label_distribution == "data" and classes == data.num_classes
        sizes = tuple(data.train.class_sizes()) if follows_data else ()
        return new_prior(latent=latent_of(generator), num_classes=classes, class_sizes=sizes)
    tensors = data.train.tensors
    g_arguments = generator_arguments(generator, tensors)
    d_arguments = discriminator_arguments(nets[Side.D], tensors, sample)
    return new_prior(latent=latent_of(generator), discriminator_arguments=d_arguments, generator_arguments=g_arguments)
