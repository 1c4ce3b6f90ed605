"""What every file of the losses shelf keeps."""

import pytest
import torch

from paragan import build
from paragan.config import choose
from paragan.core import registry

LOGITS = torch.linspace(-4, 4, 9, dtype=torch.float64)
REAL, FAKE = (grid.flatten() for grid in torch.meshgrid(LOGITS, LOGITS, indexing="ij"))


@pytest.fixture(params=registry.names("losses"))
def loss(request):
    return build.adversarial(choose("losses", request.param))


def slopes(function, *logits):
    held = [logit.clone().requires_grad_() for logit in logits]
    found = torch.autograd.grad(function(*held).sum(), held, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(held, found, strict=True)]


def test_d_wants_real_up_and_fake_down(loss):
    """At and around the decision boundary; least squares turns back beyond its targets."""
    near = (REAL.abs() < 1) & (FAKE.abs() < 1)
    real, fake = slopes(loss.d, REAL, FAKE)
    assert (real[near] < 0).all()
    assert (fake[near] > 0).sum() >= (near.sum() * 2) // 3 and (fake[FAKE > 0] > 0).all()


def test_g_wants_fake_up(loss):
    fake, real = slopes(loss.g, FAKE, REAL)
    assert (fake[FAKE < 1] < 0).all()
    assert bool(real.any()) == loss.g_needs_real


def test_elementwise_over_rows_and_patches(loss):
    real, fake = REAL.reshape(9, 3, 3), FAKE.reshape(9, 3, 3)
    for function, a, b in ((loss.d, real, fake), (loss.g, fake, real)):
        whole = function(a, b)
        every = (a, b) if loss.compares else ()
        assert whole.shape == (9, 3, 3)
        assert torch.equal(whole.flatten(), function(a.flatten(), b.flatten()))
        rows = [function(p, q, *every) for p, q in zip(a.split(2), b.split(2), strict=True)]
        assert torch.equal(torch.cat(rows), whole)


@pytest.mark.parametrize("size", [1e-8, 60.0, 1e4])
def test_finite_in_float32(loss, size):
    real, fake = torch.tensor([size, -size]), torch.tensor([-size, size])
    for function, a, b in ((loss.d, real, fake), (loss.g, fake, real)):
        value = function(a, b)
        assert value.dtype == torch.float32 and value.isfinite().all()
        assert all(slope.isfinite().all() for slope in slopes(function, a, b))
