"""Trial of the penalties of a game, one at a time, and of what draws from a global generator."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from paragan.core import rng
from paragan.core.capabilities import Capability, Need
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Penalty
from paragan.core.types import Batch, Side
from paragan.game.gan import GAN
from paragan.game.held_state import HeldState
from paragan.game.needs import check_terms
from paragan.game.player import Player
from paragan.game.term import code_of, tried


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
            used: set[Capability] = set()
            if penalty is not None:
                trial = _with_penalty(trial, side, tried(penalty, list(nets.values()), used))
                what = f"penalty {penalty.name}"
            with reraise_as_config_error(what, hint):
                if _turn_draws(trial, side, penalty, real):
                    drawing.add(side)
            if isinstance(player := game.slots[side], Player):
                check_terms(player, player.policy.micro_batches, [Need(what, need) for need in used])
    return drawing


def _turn_draws(game: GAN, side: Side, penalty: Penalty | None, real: Batch) -> bool:
    """Run a turn, and a second one with a user's penalty; return whether the first draws."""
    player = game.slots[side]
    assert isinstance(player, Player)
    turn = game.turn(side, real)
    if not turn.is_due:
        return False
    before = generator_states(game.prior.device)
    run_turn = partial(player.compute_gradients, turn, against=game.slots[turn.opponent])
    run_turn()
    player.state.check()
    is_drawing = generator_states(game.prior.device) != before
    if penalty is not None:
        _notice_held_state(penalty, run_turn)
    return is_drawing


def _notice_held_state(penalty: Penalty, run_turn: Callable[[], object]) -> None:
    """Warn of what a user's penalty changes in its second turn: in the first it may create what it needs."""
    if (code := code_of(penalty)) is not None:
        held = HeldState(code, saved=[penalty.state, *penalty.state.values()])
        run_turn()
        held.notice_changes(f"penalty {penalty.name}")


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
