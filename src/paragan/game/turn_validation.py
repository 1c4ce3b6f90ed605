"""Validation of a game with custom code: each error is one line that names its cause."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from paragan.core import rng
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Penalty
from paragan.core.types import Batch, Rows, Side, present_tensors
from paragan.game.gan import GAN
from paragan.game.label_use import ignores_labels
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.validation import ROWS, validate_networks


def validate(
    game: GAN,
    makers: Mapping[Side, Callable[[], nn.Module]],
    shape: tuple[int, int, int],
    num_classes: int,
    has_pairs: bool,
    turns: bool = True,
) -> None:
    """Run both networks, the loss and every penalty once, and check the use of labels.

    makers: build networks for this. Of `game` only `prior.uses_labels` changes. shape: (C, H, W).
    num_classes: of the data. turns: False leaves the penalties out. Raises `ConfigError`.
    """
    nets = {side: make() for side, make in makers.items()}
    g, d = (CalledNetwork(nets[side]) for side in (Side.G, Side.D))
    validate_networks(g, d, game.loss, game.prior, shape, has_pairs)
    if turns:
        with torch.random.fork_rng(devices=[]):
            run_each_penalty(game, nets, _noise(game, shape, num_classes, has_pairs))
    if game.prior.num_classes and not has_pairs:
        game.prior = replace(game.prior, uses_labels=not ignores_labels(nets[Side.G], game.prior))


def run_each_penalty(game: GAN, nets: Mapping[Side, nn.Module], real: Batch) -> None:
    """Run one turn of each side without penalties, and one with each, up to the gradients."""
    players = {side: Player(side, net) for side, net in nets.items()}
    nothing: dict[str, Any] = {"g_penalties": (), "d_penalties": (), "adversarial": game.adversarial.started}
    nothing |= {"balancer": None, "further": {side: players[side] for side in game.further}, "further_penalties": {}}
    without = replace(game, g=players[Side.G], d=players[Side.D], **nothing)
    for side, penalties in game.penalties.items():
        for penalty in (None, *penalties):
            augment, copied = copy.deepcopy((without.augment, penalty))  # both may have state
            tried = replace(without, augment=augment, **_only(side, copied))
            with reraise_as_config_error(_description(game, side, penalty)):
                turn = tried.turn(side, real)
                if turn.is_due:
                    players[side].compute_gradients(turn, against=players[turn.opponent])


def _only(side: Side, penalty: Penalty | None) -> dict[str, Any]:
    """Return the fields of a game in which a player has one penalty, or none."""
    if penalty is None:
        return {}
    if side.is_further:
        return {"further_penalties": {side: (penalty,)}}
    return {f"{side.value}_penalties": (penalty,)}


def _description(game: GAN, side: Side, penalty: Penalty | None) -> str:
    if penalty is not None:
        return f"penalty {penalty.name}"
    images = "" if game.augment is None else " with augmented images"
    return f"model: an update of {side.value.upper()}{images}"


def _noise(game: GAN, shape: tuple[int, int, int], num_classes: int, has_pairs: bool) -> Batch:
    rows = Rows(0, 0, ROWS, ROWS)
    prior = game.prior

    def images(stream: str) -> torch.Tensor:
        drawn = rng.uniform(prior.seed, f"trial/{stream}", rows, shape)
        return (drawn * 2 - 1).to(prior.device, prior.dtype)

    y = None
    if num_classes:
        y = rng.integers(prior.seed, "trial/real", rows, num_classes).to(prior.device)
    condition = images("condition") if has_pairs else None
    return Batch(rows, present_tensors(image=images("real"), label=y, condition=condition))
