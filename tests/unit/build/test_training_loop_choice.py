"""Period after which the ranks of players on separate ranks have equal weights."""

from collections.abc import Mapping, Sequence

import pytest

from paragan.build.execution import loop_class
from paragan.config import read_recipe
from paragan.core.dist import ALONE
from paragan.core.roles import Roles
from paragan.core.types import Side

SPLIT: Mapping[Side, Sequence[int]] = {Side.G: (0, 1), Side.D: (2, 3)}


@pytest.mark.parametrize(
    ("words", "ranks", "period"),
    [
        (("preset=paragan",), SPLIT, 2),
        (("preset=paragan", "d.updates_per_step=2"), SPLIT, 2),
        (("preset=paragan", "g.strategy={name: local_sgd, every: 3}"), SPLIT, 6),
        (("preset=paragan",), {Side.G: (0,), Side.D: (1,)}, 1),
        (("g.strategy=ddp", "d.strategy=zero3"), SPLIT, 1),
        ((), {}, 1),
    ],
)
def test_loop_class_has_the_period_of_local_sgd_on_separate_ranks(words, ranks, period):
    make = loop_class(read_recipe("digits", words), Roles(world=ALONE, batch_world=ALONE, ranks=ranks), reading=False)
    assert make.keywords["sync_period"] == period
