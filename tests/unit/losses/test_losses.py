"""Which losses need real logits, and the margin of hinge; their formulas: tests/numerics."""

import torch

from paragan.losses import hinge, least_squares, nonsaturating, relativistic, wasserstein

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
