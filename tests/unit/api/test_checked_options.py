"""Options that a program makes, with numbers that a recipe would refuse."""

import dataclasses
import inspect

import numpy as np
import pytest

import paragan as pg


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: pg.NonsaturatingOptions(d_weight="0.5"), "d_weight is '0.5'"),
        (lambda: pg.NonsaturatingOptions("0.5"), "d_weight is '0.5'"),
        (lambda: pg.R1Options(interval="4"), "interval is '4'"),
        (lambda: pg.R1Options(weight=-1), "weight is -1"),
        (lambda: pg.LeCamOptions(weight=float("nan")), "weight is nan"),
        (lambda: pg.AdaptiveAugmentOptions(target="0.5"), "target is '0.5'"),
        (lambda: pg.ScheduleOptions(name="cosine", end="200"), "end is '200'"),
        (lambda: pg.RelativisticAverageOptions(kind="0.5"), "kind is '0.5'"),
        (lambda: pg.WeightSchedule(start="1", final=0), "start is '1'"),
        (lambda: dataclasses.replace(pg.EmaOptions(), ramp="0.05"), "ramp is '0.05'"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_by_its_name(make, option):
    with pytest.raises(pg.ConfigError, match=f": {option}; pass "):
        make()


def test_options_take_what_they_took():
    schedule = pg.WeightSchedule(start=1, final=0.5, to_kimg=3)
    options = pg.R1Options(weight=np.float32(1.5), interval=np.int64(3))
    assert (options.weight, options.interval) == (1.5, 3)
    assert pg.R1Options(weight=schedule).weight is schedule
    assert pg.EmaOptions(ramp=None) == pg.EmaOptions()
    assert list(inspect.signature(pg.R1Options).parameters) == ["weight", "interval"]
