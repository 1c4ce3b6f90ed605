"""What a game needs of its scheme, strategies, executor and grid; checks of a player's settings against them."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from paragan.core.capabilities import ALL, Capability, Holder, Need, check_capabilities
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty, adaptive
from paragan.core.source import TensorSpec
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.game.gan import GAN
from paragan.game.options import PlayerOptions
from paragan.game.player import Player


def term_needs(penalties: Sequence[Penalty], loss: frozenset[Capability], name: str) -> Iterator[Need]:
    """Yield what the terms of one player need. loss, name: needs of the adversarial loss, and its name."""
    yield from (Need(name, need, "choose another loss") for need in loss)
    for penalty in penalties:
        what = f"penalty {penalty.name}"
        yield from (Need(what, need) for need in penalty.needs)
        if penalty.per_sample:
            yield Need(what, Capability.SEPARATE_SAMPLES)
        if penalty.state:
            yield Need(what, Capability.TERM_STATE)
        if isinstance(penalty.weight, WeightSchedule):
            yield Need(f"the weight of penalty {penalty.name}", Capability.SCHEDULES)


def game_needs(game: GAN, tensors: Mapping[str, TensorSpec] | None = None) -> Iterator[Need]:
    """Yield what a game needs, for `check_capabilities`. tensors: of a sample of the data."""
    for side, penalties in game.penalties.items():
        yield from term_needs(penalties, frozenset() if side.is_extra else game.loss.needs, "the loss")
    if game.extra:
        yield Need("the setting players", Capability.EXTRA_PLAYERS)
    if game.balancer is not None:
        yield from game.balancer.needs
    yield from _schedule_needs(game)
    if (augment := adaptive(game.augment)) is not None:
        yield Need(f"augmentation {augment.name}", Capability.AUGMENT_STATE)
    if game.loss.g_needs_real:
        yield Need("the loss", Capability.REAL_IN_G_TURN, "choose loss hinge")
    for penalty in game.g_penalties:
        if penalty.needs_real:
            yield Need(f"penalty {penalty.name}", Capability.REAL_IN_G_TURN)
    for side, slot in game.slots.items():
        if isinstance(slot, Player) and slot.calling.dtype is torch.float16:
            yield Need(f"{side.value}.precision=fp16", Capability.LOSS_SCALE, "use bf16")
    yield from _data_needs(game, tensors or {})


def _schedule_needs(game: GAN) -> Iterator[Need]:
    if game.d_pauses:  # a setting, by which D does not train on every batch
        yield Need(game.d_pauses, Capability.PAUSES)
    adversarial = game.adversarial
    for name in ("start_kimg", "d_start_kimg"):
        if getattr(adversarial, name):
            yield Need(f"adversarial.{name}", Capability.SCHEDULES)
    if isinstance(adversarial.weight, WeightSchedule):
        yield Need("adversarial.weight", Capability.SCHEDULES)


def _data_needs(game: GAN, tensors: Mapping[str, TensorSpec]) -> Iterator[Need]:
    if game.prior.reads_batches:
        yield Need("a generator of named tensors", Capability.BATCH_INPUTS)
    elif "condition" in tensors:
        yield Need("data of pairs", Capability.PAIRS, "use other data")
    for name in game.prior.judged:
        if name in tensors and -1 in tensors[name].shape:
            yield Need(f"the tensor {name!r}", Capability.RAGGED, "pass a list of tensors and one bucket")


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
    check_terms(player, options.micro_batches, tuple(term_needs(penalties, loss_needs, f"loss {loss}")))
    check_capabilities(player.strategy.holder, options.needs(player.side.value))


def check_terms(player: Player, micro_batches: int, needs: Sequence[Need]) -> None:
    """Raise `ConfigError` if terms need what the player's strategy, micro-batches or network do not have."""
    key = player.side.value
    check_capabilities(player.strategy.holder, needs)
    if micro_batches > 1:
        name = f"{key}.micro_batches={micro_batches}"
        check_capabilities(Holder(name, ALL - {Capability.COUPLED}, f"set {key}.micro_batches=1"), needs)
    if player.plain_network.mixes:
        norms = "choose another norm (dcgan: model.d_norm=spectral)"
        check_capabilities(Holder(f"batch norm of {key}", ALL - {Capability.SEPARATE_SAMPLES}, norms), needs)


def check_counts(side: Side, options: PlayerOptions, batch: int, world: World) -> None:
    """Raise `ConfigError` for too many ranks or micro-batches, or updates of G other than one."""
    if batch < world.size:
        raise ConfigError(
            f"train.batch={batch} is less than one image for each of {world.size} ranks; pass a larger batch"
        )
    if options.micro_batches > batch // world.size:
        on = "" if world.size == 1 else f" on {world.size} ranks"
        raise ConfigError(
            f"{side.value}.micro_batches={options.micro_batches} is too many for a batch of "
            f"{batch}{on}: each needs an image; pass a smaller number"
        )
    if side is not Side.D and options.update_probability < 1:
        key = f"players.{side.value}" if side.is_extra else side.value
        raise ConfigError(f"{key}.update_probability is not supported: only D skips steps; set d.update_probability")
    if side is Side.G and options.updates_per_step > 1:
        raise ConfigError(
            f"g.updates_per_step={options.updates_per_step} is not supported: a step has one "
            "update of G; set d.updates_per_step, or use a smaller g learning rate"
        )
