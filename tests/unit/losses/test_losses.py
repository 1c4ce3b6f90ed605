"""Which losses need real logits, and the margin of hinge; their formulas: tests/numerics."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.losses import hinge, least_squares, nonsaturating, relativistic, relativistic_average, wasserstein

REAL = torch.tensor([-2.0, -0.5, 0.3, 1.7], dtype=torch.float64)
FAKE = torch.tensor([1.4, -1.2, 0.6, -3.0], dtype=torch.float64)


def test_only_pairing_needs_the_real_logits():
    assert relativistic.loss.g_needs_real
    assert not nonsaturating.loss(nonsaturating.Options()).g_needs_real
    assert not any(loss.loss.g_needs_real for loss in (least_squares, hinge, wasserstein))
    for loss in (nonsaturating, least_squares, hinge, wasserstein):
        assert torch.equal(loss.g_loss(FAKE), loss.g_loss(FAKE, REAL))


def test_hinge_is_silent_beyond_its_margin():
    real, fake = REAL.clone().requires_grad_(), FAKE.clone().requires_grad_()
    hinge.d_loss(real, fake).sum().backward()
    assert real.grad.tolist() == [-1, -1, -1, 0]
    assert fake.grad.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("loss", "values"), [(nonsaturating, ("0.5", float("nan"), None)), (relativistic_average, ("logistics", 1, None))]
)
def test_an_option_that_a_program_sets_wrongly_is_named(loss, values):
    name = loss.__name__.rpartition(".")[2]
    for value in values:
        with pytest.raises(ConfigError, match=rf"^loss {name} has \w+={value!r}; pass "):
            loss.loss(loss.Options(value))
