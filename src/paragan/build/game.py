"""Construction of the game of a config: players, loss, penalties, prior and scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from paragan.build.data import Data, refuse_other_samples, refuse_unpaired
from paragan.build.latent_prior import prior
from paragan.build.networks import has_outside_networks, maker
from paragan.build.players import player, remote_player, worker_player
from paragan.build.terms import adversarial, augmentation, balancing, penalties
from paragan.config import RunConfig, default_scheme, outside_names
from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.network_factory import Model, NetworkFactory
from paragan.core.protocols import PlayerSlot
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.player_checks import check_player, refuse_invalid_counts
from paragan.game.scheme import FunctionScheme, Scheme
from paragan.game.validation import validate, validate_on


def gan(
    config: RunConfig,
    found: Data,
    device: torch.device,
    roles: Roles | None = None,
    model: Model | None = None,
    turns: bool = True,
    makers: Mapping[Side, NetworkFactory] | None = None,
) -> GAN:
    """Build the player slots and their game; refuse a loss or penalty that a strategy cannot run.

    Outside code and games on named tensors are validated on a few samples. turns: outside code also
    by an update of either side. makers: build the networks; nothing is validated then.
    """
    refuse_other_samples(config, found, model)
    refuse_unpaired(config, found, has_outside_networks(config, model), model)
    roles = colocated_roles(ALONE) if roles is None else roles
    is_validated = makers is None and (model is not None or bool(outside_names(config)) or not found.is_image)
    makers = makers or {side: maker(config, side, found, device, model) for side in map(Side, config.player_options)}
    game = _game(config, found, device, roles, model, makers)
    if is_validated:  # on a separate pair, so that no state changes
        parts = max(options.micro_batches for options in config.player_options.values())
        batch = max(1, config.train.batch // (roles.batch_world.size * parts))
        _validate(game, makers, found, turns, batch)
    return game


def _game(
    config: RunConfig,
    found: Data,
    device: torch.device,
    roles: Roles,
    model: Model | None,
    makers: Mapping[Side, NetworkFactory],
) -> GAN:
    """Return the game of this rank's players; refuse a loss or penalty that a strategy cannot run."""
    options = {Side(name): of_player for name, of_player in config.player_options.items()}
    players = _players(options, makers, roles, config.train.executor)
    stand_ins = _stand_ins(options, makers, roles, config.train.executor)
    slots = {side: players.get(side) or stand_ins[side] for side in options}
    loss = adversarial(config.loss, model)
    penalties_by_side = penalties(config, found, model)
    for side, slot in players.items():
        check_player(options[side], slot, penalties_by_side[side], loss.needs, config.loss.name)
        refuse_invalid_counts(side, options[side], config.train.batch, roles.batch_world)
    nets = {side: players[side].net if side in players else makers[side].construct() for side in Side}
    return GAN(
        g=slots[Side.G],
        d=slots[Side.D],
        loss=loss,
        prior=prior(config, found, device, nets, model),
        g_penalties=penalties_by_side[Side.G],
        d_penalties=penalties_by_side[Side.D],
        augment=augmentation(config, nets[Side.D]),
        balancer=balancing(config),
        total=roles.batch_world.sum,
        further={side: slot for side, slot in slots.items() if side.is_further},
        further_penalties={side: penalties_by_side[side] for side in slots if side.is_further},
        adversarial=config.adversarial,
    )


def _players(
    options: Mapping[Side, PlayerOptions], makers: Mapping[Side, NetworkFactory], roles: Roles, executor: str
) -> dict[Side, Player]:
    """Return the players of this rank."""
    scaled = {side: of_player.precision == "fp16" for side, of_player in options.items()}
    # G's gradient passes through D: an fp16 D underflows it for any format of G.
    scaled[Side.G] = any(scaled.values())
    here = filter(roles.has, options)
    return {side: player(side, makers[side], options[side], scaled[side], roles.batch_world, executor) for side in here}


def _stand_ins(
    options: Mapping[Side, PlayerOptions], makers: Mapping[Side, NetworkFactory], roles: Roles, executor: str
) -> dict[Side, PlayerSlot]:
    """Return a slot for every player that other ranks have."""
    make = worker_player if roles.has_server else partial(remote_player, has_state=roles.sends_states)
    away = [side for side in options if not roles.has(side)]
    return {side: make(side, makers[side], options[side], executor=executor) for side in away}


def _validate(game: GAN, makers: Mapping[Side, NetworkFactory], found: Data, turns: bool, batch: int) -> None:
    if found.is_image:
        validate(game, makers, found.train.shape, found.num_classes, found.has_pairs, turns, batch)
    else:
        validate_on(game, makers, found.train, batch)


def scheme(config: RunConfig) -> Scheme:
    """Return the scheme of a run: its module's `Scheme`, or its function `step`."""
    module = registry.load_module("schemes", config.scheme.name)
    if not hasattr(module, "Scheme"):
        capabilities = getattr(module, "capabilities", FunctionScheme.capabilities)
        return FunctionScheme(module.step, capabilities, getattr(module, "simulate", None))
    made: Scheme = module.Scheme(config.scheme.options) if hasattr(module, "Options") else module.Scheme()
    return made


def in_turns(config: RunConfig) -> RunConfig:
    """Return the config with the default scheme in place of one whose players train at the same time."""
    if not scheme(config).is_concurrent:
        return config
    return replace(config, scheme=default_scheme())
