"""The made table has the shares, means and correlations of the real one."""

from __future__ import annotations

import random

import pytest
import torch

from tests.examples.stopped_runs import Killed, assert_equal_runs, assert_killed_is_straight, killed_at

STEPS = 12
KILLED_AT = sorted(random.Random(20261126).sample(range(2, STEPS), 3))
SMALL = {"train.batch": 4, "train.kimg": STEPS * 4 / 1000, "every.save_kimg": 0.016}


@pytest.fixture(scope="module")
def tabular(example):
    return example("tabular")


@pytest.fixture(scope="module")
def summaries(tabular, tmp_path_factory):
    run = tabular.trainer(800, out=tmp_path_factory.mktemp("tabular")).run()
    torch.manual_seed(0)
    made = run.generator(torch.randn(10_000, tabular.Generator.latent))
    return tabular.summary(tabular.table(10_000, torch.Generator().manual_seed(1))), tabular.summary(made)


@pytest.mark.slow
def test_tabular_category_shares_are_close(summaries):
    real, made = summaries
    assert (real[:, 0] - made[:, 0]).abs().max() < 0.1


@pytest.mark.slow
def test_tabular_means_per_category_are_close(summaries):
    real, made = summaries
    assert (real[:, 1:3] - made[:, 1:3]).abs().max() < 0.3


@pytest.mark.slow
def test_tabular_correlations_per_category_have_the_right_sign(summaries):
    real, made = summaries
    assert made[0, 3] > 0.4 and made[2, 3] < -0.4
    assert (real[:, 3] - made[:, 3]).abs().max() < 0.4


def test_tabular_generated_row_is_a_valid_row(tabular):
    rows = tabular.Generator()(torch.randn(64, tabular.Generator.latent))
    kind = rows[:, :3]
    assert rows.shape == (64, 5)
    assert torch.allclose(kind.round(), kind, atol=1e-6)
    assert torch.allclose(kind.sum(1), torch.ones(64))


def test_tabular_interrupted_at_three_steps_equals_the_uninterrupted_run(tabular, tmp_path):
    tabular.trainer(out=tmp_path / "straight", settings=SMALL).run()
    for position in KILLED_AT:
        made = killed_at(tabular.trainer(out=tmp_path / "killed", settings=SMALL), position, batch=4)
        with pytest.raises(Killed):
            made.run()
    tabular.trainer(out=tmp_path / "killed", settings=SMALL).run()
    assert_equal_runs(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_tabular_killed_at_three_steps_equals_the_uninterrupted_run(tmp_path, ranks):
    assert_killed_is_straight("tabular", tmp_path, STEPS, KILLED_AT, ranks)
