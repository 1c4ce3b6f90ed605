"""Trial of the penalties of a game, one at a time, and of what draws from a global generator."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from paragan.core import rng
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Penalty
from paragan.core.types import Batch, Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.term import tried


def run_each_penalty(game: GAN, nets: Mapping[Side, nn.Module], real: Batch, extra: Sequence[str]) -> set[Side]:
    """Run one turn of each side without penalties, and one with each; return the sides whose turns draw.

    A loss, a penalty or the network of an extra player may draw from the global generators as G and D do.
    extra: names of what else G returns.
    """
    inputs = ", ".join(game.prior.feed("trial", real).tensors)
    hint = (
        f"; a term reads images, fake, real (needs_real=True) and extra ({', '.join(extra) or 'none here'}) of the "
        f"outputs, tensors ({inputs}) and real.tensors ({', '.join(real.tensors)}) of the inputs"
    )
    players = {side: Player(side=side, net=net) for side, net in nets.items()}
    plain_game = replace(
        game,
        g=players[Side.G],
        d=players[Side.D],
        g_penalties=(),
        d_penalties=(),
        adversarial=game.adversarial.started,
        balancer=None,
        extra={side: players[side] for side in game.extra},
        extra_penalties={},
    )
    images = "" if game.augment is None else " with augmented images"
    drawing = set()
    for side, penalties in game.penalties.items():
        for penalty in (None, *penalties):
            augment, penalty = copy.deepcopy((game.augment, penalty))  # both may have state
            trial = replace(plain_game, augment=augment)
            what = f"model: an update of {side.value.upper()}{images}"
            if penalty is not None:
                trial = _with_penalty(trial, side, tried(penalty, list(nets.values())))
                what = f"penalty {penalty.name}"
            with reraise_as_config_error(what, hint):
                turn = trial.turn(side, real)
                before = generator_states(game.prior.device)
                if turn.is_due:
                    players[side].compute_gradients(turn, against=players[turn.opponent])
                    players[side].state.check()
                if generator_states(game.prior.device) != before:
                    drawing.add(side)
    return drawing


def _with_penalty(game: GAN, side: Side, penalty: Penalty) -> GAN:
    """Return a game in which a player has this penalty alone."""
    if side.is_extra:
        return replace(game, extra_penalties={side: (penalty,)})
    if side is Side.G:
        return replace(game, g_penalties=(penalty,))
    return replace(game, d_penalties=(penalty,))


def generator_states(device: torch.device) -> dict[str, bytes]:
    """Return the states of the global generators: of torch, numpy and `random`, and of a device."""
    states = rng.global_states()
    if device.type != "cpu":
        states["device"] = torch.get_device_module(device).get_rng_state(device).numpy().tobytes()
    return states
