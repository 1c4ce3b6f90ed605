"""The batch of other workers, and the learning rates that go with it."""

import pytest

from paragan.core.errors import ConfigError
from paragan.game.options import OptimizerOptions, PlayerOptions, ScheduleOptions
from paragan.runs import scaling_rules as rules


@pytest.mark.parametrize(
    ("bs", "num_workers", "found", "batch"),
    [(2048, 128, 1, 16), (2048, 128, 128, 2048), (64, 2, 6, 192), (100, 8, 2, 25)],
)
def test_each_worker_keeps_its_images(bs, num_workers, found, batch):
    assert rules.scaled_batch(bs, num_workers, found) == batch


@pytest.mark.parametrize(("bs", "num_workers", "nearest"), [(100, 8, 96), (101, 8, 104), (9, 8, 8)])
def test_a_batch_that_is_no_whole_number_is_refused_with_one_nearby(bs, num_workers, nearest):
    with pytest.raises(ConfigError, match=rf"for the 1 of this run; pass a multiple of num_workers such as {nearest}$"):
        rules.scaled_batch(bs, num_workers, 1)


@pytest.mark.parametrize(("rule", "factor"), [("sqrt", 3.0), ("linear", 9.0), ("none", 1.0)])
def test_the_rules_are_what_they_are_called(rule, factor):
    assert rules.learning_rate_factor(rule, 9.0) == factor


def test_a_scaled_player_has_another_learning_rate_and_nothing_else():
    before = PlayerOptions(
        optimizer=OptimizerOptions("SGD", 0.1, {"momentum": 0.9}), schedule=ScheduleOptions(warmup=5), max_norm=1.0
    )
    assert rules.scale_learning_rates(before, 4.0) == PlayerOptions(
        optimizer=OptimizerOptions("SGD", 0.4, {"momentum": 0.9}), schedule=ScheduleOptions(warmup=5), max_norm=1.0
    )
