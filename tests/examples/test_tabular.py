"""The made table has the shares, means and correlations of the real one."""

import pytest
import torch


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
def test_tabular_shares_means_and_correlations_are_those_of_the_table(summaries):
    real, made = summaries
    assert (real[:, 0] - made[:, 0]).abs().max() < 0.1
    assert (real[:, 1:3] - made[:, 1:3]).abs().max() < 0.3
    assert made[0, 3] > 0.4 and made[2, 3] < -0.4
    assert (real[:, 3] - made[:, 3]).abs().max() < 0.4


def test_tabular_generated_row_is_a_valid_row(tabular):
    rows = tabular.Generator()(torch.randn(64, tabular.Generator.latent))
    kind = rows[:, :3]
    assert rows.shape == (64, 5)
    assert torch.allclose(kind.round(), kind, atol=1e-6)
    assert torch.allclose(kind.sum(1), torch.ones(64))
