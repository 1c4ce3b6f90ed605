"""What a pipeline takes from the strategy of the ranks with the same stage. Equality over ranks: tests/distributed."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from torch import nn

from paragan.extensions.large_models.parallel import pipeline
from paragan.penalties import lecam, r1

PENALTIES = {
    "none": (),
    "lecam": (lecam.Penalty(lecam.Options()),),
    "r1": (r1.Penalty(r1.Options()),),
    "both": (lecam.Penalty(lecam.Options()), r1.Penalty(r1.Options())),
}


@pytest.mark.parametrize("penalties", PENALTIES)
@pytest.mark.parametrize("data", ["ddp", "zero1", "zero2", "zero3"])
def test_sharded_copies_reduce_at_the_end_of_a_turn_that_differentiates_twice(data, penalties):
    strategy = pipeline.Strategy(pipeline.Options(data=data))
    around = strategy.around_turn(SimpleNamespace(penalties=PENALTIES[penalties]), nn.Linear(2, 2))
    is_reduced_last = not isinstance(around, nullcontext)
    assert is_reduced_last == (data in ("zero2", "zero3") and penalties in ("r1", "both"))
