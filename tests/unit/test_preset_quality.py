"""`benchmarks.preset_quality`: rows differ in what they name only, and differences are of equal seeds."""

from __future__ import annotations

import pytest

from benchmarks import preset_quality as quality
from paragan.api.training import setting_word
from paragan.config import read_recipe

DIGITS = quality.TABLES["digits"]


def config_of(row):
    return read_recipe("digits", [setting_word(key, value) for key, value in DIGITS.settings(row, 0).items()])


@pytest.mark.parametrize(
    ("row", "scheme", "strategy", "rounding"),
    [
        ("sync", "shared_fakes", "ddp", None),
        ("sync, H = 2", "shared_fakes", "local_sgd", None),
        ("preset", "asynchronous", "local_sgd", "bf16"),
        ("preset, H = 1", "asynchronous", "ddp", "bf16"),
        ("preset, batch norm over ranks", "asynchronous", "local_sgd", "bf16"),
        ("preset, exact", "asynchronous", "local_sgd", "exact"),
    ],
)
def test_rows_differ_in_scheme_strategy_and_rounding_only(row, scheme, strategy, rounding):
    config = config_of(row)
    preset = config_of("preset")
    assert config.scheme.name == scheme
    assert {config.g.strategy.name, config.d.strategy.name} == {strategy}
    assert getattr(config.scheme.options, "state_dtype", None) == rounding
    assert (config.g.optimizer, config.d.optimizer) == (preset.g.optimizer, preset.d.optimizer)
    assert (config.train, config.data, config.penalties) == (preset.train, preset.data, preset.penalties)
    assert config.g.norm_ranks == (2 if row == "preset, batch norm over ranks" else None)


def test_summary_takes_differences_seed_by_seed():
    def runs(*ends):
        points = [[{"step": 0, "fd[judge]": 9.0}, {"step": 500, "fd[judge]": end}] for end in ends]
        return [{"points": of, "lags": {"g": {"1": 2}, "d": {}}, "wall_s": 1.0, "config": ""} for of in points]

    found = quality.summary(DIGITS, {"sync": runs(1.0, 2.0, 3.0), "preset": runs(1.5, 2.5, 3.5)})
    less = found["rows"]["preset"]["less sync"]
    assert less["mean"] == 0.5
    assert less["half"] == 0.0
    assert not less["is zero within it"]
    assert less["its mean is within the interval of sync"]
    assert found["rows"]["preset"]["lags"] == {"g": {"1": 6}, "d": {}}
    assert [point["step"] for point in found["rows"]["sync"]["curve"]] == [0, 500]
