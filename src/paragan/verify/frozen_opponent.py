"""Law "frozen means frozen": a turn changes no weight, buffer or output of the other player."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paragan.core.types import Side
from paragan.game.player import Player
from paragan.layers.random import preserved_state
from paragan.verify.diagnosis import NetworkTraits, has_torch_spectral_norm, network_output
from paragan.verify.finding import SPECTRAL, LawResult, failed_result, passed_result
from paragan.verify.reference_run import NAMES, ReferenceRun, VerifiedNetworks, network_inputs

_TAKE_UPDATE = "paragan.layers.update_once.UpdateOnce.take_update()"


def check_frozen_opponent(subject: VerifiedNetworks, side: Side, of: NetworkTraits) -> LawResult:
    """Check that this player does not change while the other one runs its turn."""
    game = ReferenceRun(subject)
    mine = game.players[side]
    theirs = game.players[Side.D if side is Side.G else Side.G]
    shared = _shared(mine.net, theirs.net)
    if shared:
        return failed_result(
            f"{NAMES[side]}.{shared} is also a weight of the other network; networks must not share weights"
        )
    before = _state(mine.net)
    turn = game.gan.g_turn(subject.real()) if side is Side.D else game.gan.d_turn(subject.real())
    theirs.update(turn, against=mine)
    changed = [name for name, value in _state(mine.net).items() if not torch.equal(value, before[name])]
    if changed:
        return failed_result(
            f"{NAMES[side]}.{changed[0]} changed in the other player's turn: {_why(mine.net, changed[0])}"
        )
    leaked = next((name for name, weight in mine.net.named_parameters() if weight.grad is not None), None)
    if leaked is not None:
        return failed_result(
            f"{NAMES[side]}.{leaked} has a gradient from the other player's turn: is there an enable_grad in forward?"
        )
    return passed_result(0.0) if of.hidden_generator else _behaviour(subject, side, mine)


def _behaviour(subject: VerifiedNetworks, side: Side, player: Player) -> LawResult:
    """Compare outputs with a new network of equal weights and buffers, to find other state."""
    new = subject.net(side)
    new.load_state_dict(player.net.state_dict())  # the constructor may draw other weights
    now = _probe(subject, side, player.net)
    fresh = _probe(subject, side, new)
    if torch.equal(now, fresh):
        return passed_result(0.0)
    reason = (
        f"{NAMES[side]} gives other outputs after the other player's turn although no weight or "
        "buffer changed: its forward keeps state in an attribute; advance it only where "
        f"{_TAKE_UPDATE} returns True"
    )
    return failed_result(reason, float((now - fresh).abs().max()))


def _probe(subject: VerifiedNetworks, side: Side, net: nn.Module) -> Tensor:
    with torch.no_grad(), preserved_state(net):
        torch.manual_seed(0)
        return network_output(side, net, network_inputs(subject, side))


def _state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in (*net.named_parameters(), *net.named_buffers())}


def _shared(mine: nn.Module, theirs: nn.Module) -> str:
    others = {id(weight) for weight in theirs.parameters()}
    return next((name for name, weight in mine.named_parameters() if id(weight) in others), "")


def _why(net: nn.Module, name: str) -> str:
    """Name the module that changes the tensor, and what to use instead."""
    module = net.get_submodule(name.rpartition(".")[0])
    if has_torch_spectral_norm(module):
        return SPECTRAL
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return (
            f"torch.nn.{type(module).__name__} updates its statistics at every forward in "
            "training; use paragan.layers.batch_norm.AffineBatchNorm, which updates them once "
            "per update of its network"
        )
    return (
        f"{type(module).__name__} changes it in its forward; derive it from "
        "paragan.layers.update_once.UpdateOnce, and change it only where self.take_update() "
        "returns True"
    )
