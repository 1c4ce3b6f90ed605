"""What a game needs of its scheme, strategies, executor and grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from paragan.core.capabilities import Capability, Need
from paragan.core.protocols import Penalty, adaptive
from paragan.core.source import TensorSpec
from paragan.core.weight_schedule import WeightSchedule
from paragan.game.gan import GAN
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
    yield from game.balancer.needs if game.balancer is not None else ()
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
    if game.d_pauses:
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
