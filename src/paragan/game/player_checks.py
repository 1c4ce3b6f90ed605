"""Checks of a player's settings against its network, its terms and the data."""

from __future__ import annotations

from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty
from paragan.core.types import Side
from paragan.game.needs import term_needs
from paragan.game.options import PlayerOptions
from paragan.game.player import Player


def check_paired_data(takes_condition: bool, model: str, has_pairs: bool, data: str) -> None:
    """Raise `ConfigError` if only one of generator and data is made for pairs."""
    if takes_condition != has_pairs:
        what = "images from images" if takes_condition else "images from latents"
        fix = "data.name=paired" if takes_condition else "data of single images, or model.name=pix2pix"
        raise ConfigError(f"model {model} makes {what}, which does not fit data {data}; use {fix}")


def check_player(
    options: PlayerOptions,
    player: Player,
    penalties: tuple[Penalty, ...],
    loss_needs: frozenset[Capability] = frozenset(),
    loss: str = "",
) -> None:
    """Raise `ConfigError` if the player's terms and settings need what strategy or network does not have."""
    key = player.side.value
    terms = tuple(term_needs(penalties, loss_needs, f"loss {loss}"))
    check_capabilities(player.strategy.holder, (*terms, *options.needs(key)))
    if options.micro_batches > 1:
        name = f"{key}.micro_batches={options.micro_batches}"
        check_capabilities(Holder(name, ALL - {Capability.COUPLED}, f"set {key}.micro_batches=1"), terms)
    if player.plain_network.mixes:
        norms = "choose another norm (dcgan: model.d_norm=spectral)"
        check_capabilities(Holder(f"batch norm of {key}", ALL - {Capability.SEPARATE_SAMPLES}, norms), terms)


def check_counts(side: Side, options: PlayerOptions, batch: int, world: World) -> None:
    """Raise `ConfigError` for too many ranks or micro-batches, or updates of G other than one."""
    if batch < world.size:
        problem = f"train.batch={batch} is less than one image for each of {world.size} ranks"
        raise ConfigError(f"{problem}; pass a larger batch")
    if options.micro_batches > batch // world.size:
        on = "" if world.size == 1 else f" on {world.size} ranks"
        raise ConfigError(
            f"{side.value}.micro_batches={options.micro_batches} is too many for a batch of "
            f"{batch}{on}: each needs an image; pass a smaller number"
        )
    if side is Side.G and options.update_probability < 1:
        raise ConfigError(
            "g.update_probability is not supported: every step has an update of G; set d.update_probability"
        )
    if side.is_extra and options.update_probability < 1:
        raise ConfigError(f"players.{side.value}.update_probability is not supported: it is for D; leave it out")
    if side is Side.G and options.updates_per_step > 1:
        raise ConfigError(
            f"g.updates_per_step={options.updates_per_step} is not supported: a step has one "
            "update of G; set d.updates_per_step, or use a smaller g learning rate"
        )
