"""Construction of the game of a config: players, loss, penalties, prior and scheme."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from paragan.build.data import Data, refuse_unpaired
from paragan.build.networks import has_outside_networks, maker
from paragan.build.players import away, copy, player
from paragan.config import RunConfig, outside_names
from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.loss import Loss
from paragan.core.network_factory import Model, NetworkFactory
from paragan.core.option_types import Choice
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.prior import Prior, latent_of
from paragan.game.scheme import FunctionScheme, Scheme
from paragan.game.state_buffers import attach_state, refuse_state
from paragan.game.turn_validation import validate
from paragan.game.validation import refuse_invalid_counts, refuse_unsupported


def gan(
    config: RunConfig,
    found: Data,
    device: torch.device,
    roles: Roles | None = None,
    model: Model | None = None,
    turns: bool = True,
    makers: Mapping[Side, NetworkFactory] | None = None,
) -> GAN:
    """Build both player slots and their game; refuse a loss or penalty that a strategy cannot run.

    turns: validate outside code by an update of either side, too. makers: build the networks;
    outside code is not validated then.
    """
    roles = colocated_roles(ALONE) if roles is None else roles
    options = {Side.G: config.g, Side.D: config.d}
    # G's gradient passes through D: an fp16 D underflows it for any format of G.
    scaled = {Side.G: "fp16" in (config.g.precision, config.d.precision), Side.D: config.d.precision == "fp16"}
    is_validated = makers is None and (model is not None or bool(outside_names(config)))
    makers = makers or {side: maker(config, side, found, device, model) for side in Side}
    how = config.train.executor
    players = {
        side: player(side, makers[side], options[side], scaled[side], roles.batch_world, how) for side in roles.sides
    }
    stand_in = copy if roles.has_server else away
    seats = {side: players.get(side) or stand_in(side, makers[side], options[side]) for side in Side}
    refuse_unpaired(config, found, has_outside_networks(config, model), model)
    loss = adversarial(config.loss)
    penalties = [registry.load_module("penalties", p.name).Penalty(p.options) for p in config.penalties]
    mine = {side: tuple(p for p in penalties if p.side is side) for side in Side}
    for side, seat in players.items():
        refuse_unsupported(options[side], seat, mine[side], loss.needs, config.loss.name)
        refuse_invalid_counts(side, options[side], config.train.batch, roles.batch_world)
    latents = prior(config, players[Side.G].net if Side.G in players else makers[Side.G].construct(), found, device)
    shown = config.augment
    augment = None if shown is None else registry.load_module("augment", shown.name).Augment(shown.options)
    game = GAN(
        seats[Side.G], seats[Side.D], loss, latents, mine[Side.G], mine[Side.D], augment, total=roles.batch_world.sum
    )
    attach_state(game, device)
    if is_validated:  # on a separate pair, so that no state changes
        validate(game, makers, found.train.shape, found.num_classes, found.has_pairs, turns)
    if roles.is_split:
        refuse_state(game, f"scheme.{config.scheme.name}", roles.has_server)
    return game


def adversarial(chosen: Choice) -> Loss:
    """Return the loss of a file of `losses/`."""
    declared = registry.load_module("losses", chosen.name).loss
    made: Loss = declared if isinstance(declared, Loss) else declared(chosen.options)
    return made


def prior(config: RunConfig, generator: nn.Module, found: Data, device: torch.device) -> Prior:
    """Return the prior of a run; outside networks may leave the number of classes to the data."""
    classes = int(getattr(generator, "num_classes", found.num_classes))
    return Prior(config.seed, latent_of(generator), classes, device)


def scheme(config: RunConfig) -> Scheme:
    """Return the scheme of a run: its module's `Scheme`, or its function `step`."""
    module = registry.load_module("schemes", config.scheme.name)
    if not hasattr(module, "Scheme"):
        return FunctionScheme(module.step)
    made: Scheme = module.Scheme(config.scheme.options) if hasattr(module, "Options") else module.Scheme()
    return made
