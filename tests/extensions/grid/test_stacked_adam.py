"""One Adam for all players of a stack: what each of them would have done by itself.

That it honours every field of `Policy` or leaves it to the players: `tests/contract/test_policy.py`.
"""

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
