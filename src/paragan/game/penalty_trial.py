"""Trial of the penalties of a game, one at a time, and of what draws from a global generator."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.capabilities import Capability, Need
from paragan.core.errors import ConfigError
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.printable import join_some
from paragan.core.protocols import Penalty, PenaltyContext
from paragan.core.types import Batch, Side
from paragan.game.gan import GAN
from paragan.game.gradient_flow import notice
from paragan.game.held_state import HeldState
from paragan.game.needs import check_terms
from paragan.game.player import Player
from paragan.game.registered_state import graph_leaves
from paragan.game.term import Term


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
    images = "" if game.augment is None else " with augmented images"
    drawing = set()
    for side, penalties in game.penalties.items():
        for original in (None, *penalties):
            penalty = copy.deepcopy(original)  # it may have state
            what = f"model: an update of {side.value.upper()}{images}"
            used: set[Capability] = set()
            if penalty is not None:
                _check_calls(penalty, list(nets.values()), used)
                what = f"penalty {penalty.name}"
            trial = _trial_game(game, players, side, penalty)
            with reraise_as_config_error(what, hint):
                if _turn_draws(trial, side, penalty, real):
                    drawing.add(side)
            if isinstance(player := game.slots[side], Player):
                check_terms(player, player.policy.micro_batches, [Need(what, need) for need in used])
    return drawing


def _trial_game(game: GAN, players: Mapping[Side, Player], side: Side, penalty: Penalty | None) -> GAN:
    """Return a game of these players in which one of them has one penalty, or none, and the others have none."""
    penalties = {} if penalty is None else {side: (penalty,)}
    return replace(
        game,
        g=players[Side.G],
        d=players[Side.D],
        g_penalties=penalties.get(Side.G, ()),
        d_penalties=penalties.get(Side.D, ()),
        augment=copy.deepcopy(game.augment),  # it may have state
        adversarial=game.adversarial.started,
        balancer=None,
        extra={name: players[name] for name in game.extra},
        extra_penalties=penalties if side.is_extra else {},
    )


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
    if (code := _code_of(penalty)) is not None:
        held = HeldState(code, saved=[penalty.state, *penalty.state.values()])
        run_turn()
        held.notice_changes(f"penalty {penalty.name}")


def _code_of(penalty: Penalty) -> object | None:
    """Return the code of a user in a penalty, a function or the penalty itself; None for one of paragan's."""
    if not type(penalty).__module__.startswith("paragan."):
        return penalty
    return penalty.function if isinstance(penalty, Term) else None


def _check_calls(penalty: Penalty, nets: Sequence[nn.Module], used: set[Capability]) -> None:
    """Check each call of a user's penalty; one of paragan's says itself what it needs, and may begin with a constant.

    penalty: a copy for one trial; changed in place. Its calls raise `ConfigError` for values without a gradient, warn
    of weights of none of the networks, and add to `used` what they need.
    """
    if (code := _code_of(penalty)) is None:
        return
    kind = type(penalty)
    held = HeldState(code).tensors
    known = {id(weight) for net in nets for weight in net.parameters()}

    def call(self: Penalty, context: PenaltyContext) -> Tensor:
        values: Tensor = kind.__call__(self, _noting_whole(context, used))
        if isinstance(values, Tensor) and torch.is_grad_enabled() and not values.requires_grad:
            raise ConfigError(
                f"penalty {penalty.name} of {penalty.side.value}: its values have no gradient, so it would train "
                "nothing: is there a detach or a no_grad, or does it read data or frozen weights only?"
            )
        if isinstance(values, Tensor) and values.requires_grad:
            leaves = [leaf for leaf in graph_leaves([values]) if id(leaf) not in known]
            known.update(map(id, leaves))  # each is warned of once
            _notice_weights(penalty.name, leaves, held)
        return values

    # The class is replaced, since a wrapper function would not have the penalty's attributes; by `object`, since a
    # frozen dataclass refuses it.
    checked = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    object.__setattr__(penalty, "__class__", checked)


def _noting_whole(context: PenaltyContext, used: set[Capability]) -> PenaltyContext:
    """Return a context whose `whole` adds to `used`."""

    def whole(x_B: Tensor) -> Tensor:
        used.add(Capability.COUPLED)
        return context.whole(x_B)

    return replace(context, whole=whole, outputs=replace(context.outputs, whole=whole))


def _notice_weights(name: str, leaves: Sequence[Tensor], held: Sequence[Tensor]) -> None:
    """Warn of leaves that are weights, or tensors that a penalty holds, rather than inputs of the turn."""
    weights = [leaf for leaf in leaves if isinstance(leaf, nn.Parameter) or any(leaf is tensor for tensor in held)]
    if weights:
        notice(
            f"penalty {name} calls weights of no player (of shape "
            f"{join_some([str(tuple(weight.shape)) for weight in weights], 5)}), which no optimizer trains: give their "
            "network as players={NAME: net}, or freeze it with requires_grad_(False)"
        )


def generator_states(device: torch.device) -> dict[str, bytes]:
    """Return the states of the global generators: of torch, numpy and `random`, and of a device."""
    states = rng.global_states()
    if device.type != "cpu":
        states["device"] = torch.get_device_module(device).get_rng_state(device).numpy().tobytes()
    return states
