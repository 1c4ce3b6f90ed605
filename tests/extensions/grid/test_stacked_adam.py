"""One Adam for all players of a stack: what each of them would have done by itself."""

from dataclasses import dataclass, fields, replace

import pytest
import torch

from paragan.core.types import Side
from paragan.extensions.grid.executors import choice, stacked
from paragan.extensions.grid.executors.stacked_adam import can_stack
from paragan.game.options import ScheduleOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from tests.laws.test_loop_is_stacked import BATCH, apart, cells, loss_of, weights

DECAY = ScheduleOptions(name="linear", warmup=3, end=12)


def with_policy(**changes):
    """Cells whose players have other policies. changes: of `Policy`."""
    found = cells()
    for cell in found:
        for side, player in cell.players.items():
            old = player.policy
            fields = {"lr": old.lr, "arguments": old.arguments, "max_norm": old.max_norm, **changes}
            made = Player(
                side=side,
                net=player.net,
                strategy=player.strategy,
                policy=Policy(kind=torch.optim.Adam, **fields),
                ema=player.ema,
            )
            setattr(cell.gan, side.value, made)
    return found


@pytest.mark.parametrize("changes", [{"schedule": DECAY}, {"max_norm": None}, {"arguments": {"eps": 1e-3}}], ids=str)
def test_stacked_adam_equals_adam_per_player(changes):
    one, other = with_policy(**changes), with_policy(**changes)
    choice.train_in_loop(one, 15, loss_of)
    executor = stacked.StackedExecutor(BATCH)
    executor(other, 15, loss_of)
    assert executor._stack.slots[Side.G].adam is not None
    assert apart(weights(one), weights(other)) < 1e-9


def test_stacked_networks_with_parameter_groups_equal_the_loop():
    """Each player steps by itself then."""
    one, other = (with_policy(groups=({"match": "*.bias", "lr": 3e-3},)) for _ in range(2))
    choice.train_in_loop(one, 15, loss_of)
    executor = stacked.StackedExecutor(BATCH)
    executor(other, 15, loss_of)
    assert executor._stack.slots[Side.G].adam is None
    assert apart(weights(one), weights(other)) < 1e-9


@dataclass(frozen=True)
class LaterPolicy(Policy):
    """A policy of a later version, with a setting that `StackedAdam` does not know."""

    max_value: float | None = None


# a value that differs from the default, for each field of `Policy`
OTHERS = {
    "kind": torch.optim.AdamW,
    "lr": 1e-5,
    "arguments": {"betas": (0.5, 0.9)},
    "schedule": DECAY,
    "max_norm": 1.0,
    "micro_batches": 2,
    "updates_per_step": 2,
    "groups": ({"match": "*.bias", "lr": 1e-3},),
    "update_probability": 0.5,
    "elsewhere": ("other.weight",),
    "max_value": 0.1,
}
STACKED = {"lr", "arguments", "schedule", "max_norm", "updates_per_step"}


@pytest.mark.parametrize("name", [field.name for field in fields(LaterPolicy)])
def test_stacked_adam_takes_only_players_whose_policies_it_honours(name):
    """A new field of `Policy` fails here until it is in `OTHERS`, and honoured or refused."""
    found = cells()
    for cell in found:
        player = cell.gan.g
        player.policy = LaterPolicy(**{"lr": player.policy.lr, "arguments": player.policy.arguments})
    assert can_stack([cell.gan.g for cell in found])
    for cell in found:
        cell.gan.g.policy = replace(cell.gan.g.policy, **{name: OTHERS[name]})
        if name == "kind":
            cell.gan.g.optimizer = cell.gan.g.policy.optimizer(cell.gan.g.net.named_parameters())
    assert can_stack([cell.gan.g for cell in found]) == (name in STACKED)


@pytest.mark.parametrize(
    "changes",
    [{"arguments": {"weight_decay": 0.1}}, {"arguments": {"amsgrad": True}}, {"kind": torch.optim.AdamW}],
    ids=str,
)
def test_stacked_adam_is_not_used_for_other_optimisers(changes):
    kind = changes.pop("kind", torch.optim.Adam)
    found = cells()
    for cell in found:
        player = cell.gan.g
        cell.gan.g = Player(
            side=Side.G,
            net=player.net,
            strategy=player.strategy,
            policy=Policy(kind=kind, lr=player.policy.lr, **changes),
        )
    assert not can_stack([cell.gan.g for cell in found])
    assert can_stack([cell.gan.d for cell in found])


def test_stacked_adam_skips_only_the_cell_with_a_bad_gradient():
    one, other = cells(), cells()
    for found in (one, other):
        found[2].batches.bad = (2, 4)
    choice.train_in_loop(one, 6, loss_of)
    stacked.StackedExecutor(BATCH)(other, 6, loss_of)
    assert apart(weights(one), weights(other)) < 1e-9
    updates = [[int(cell.players[side].updates) for side in Side] for cell in other]
    assert updates == [[6, 6], [6, 6], [6, 4], [6, 6]]
    assert all(value.isfinite().all() for value in weights(other).values())
