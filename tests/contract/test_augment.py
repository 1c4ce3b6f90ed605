"""What every augmentation keeps: shape, differentiability, draws by row of the global batch, its input."""

from dataclasses import fields

import pytest
import torch

from paragan.core import registry, rng
from paragan.core.types import Rows

WHOLE = Rows(step=3, first=0, count=6, total=6)


@pytest.fixture(params=registry.names("augment"))
def augment(request):
    kind = registry.options("augment", request.param)
    sure = {"p": 1.0} if "p" in {field.name for field in fields(kind)} else {}  # what happens by chance happens
    return registry.load_module("augment", request.param).Augment(kind(**sure))


def images(channels=3, height=16, width=16):
    return rng.normal(0, "x", WHOLE, (channels, height, width)).tanh()


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 16, 16), (3, 8, 12), (2, 5, 5)])
def test_the_shape_stays_but_for_declared_channels(augment, shape):
    x = images(*shape)
    before = x.clone()
    out = augment(x, 0, "augment/d/real", WHOLE)
    appended = getattr(augment, "extra_channels", 0)
    assert (out.shape, out.dtype) == ((len(x), shape[0] + appended, *shape[1:]), x.dtype)
    assert torch.equal(x, before)
    assert not torch.equal(out[:, : shape[0]], x)


def test_parts_see_the_rows_of_the_whole(augment):
    x = images()
    whole = augment(x, 0, "s", WHOLE)
    for rows in WHOLE.parts(4):
        assert torch.equal(augment(x[rows.window], 0, "s", rows), whole[rows.window])


def test_streams_and_steps_draw_different_values(augment):
    x = images()
    first = augment(x, 0, "augment/d/real", WHOLE)
    assert torch.equal(first, augment(x, 0, "augment/d/real", WHOLE))
    assert not torch.equal(first, augment(x, 0, "augment/d/fake", WHOLE))
    assert not torch.equal(first, augment(x, 0, "augment/d/real", Rows(step=4, first=0, count=6, total=6)))


def test_gradients_pass_twice(augment):
    x = images().double().requires_grad_()
    (grad,) = torch.autograd.grad(augment(x, 0, "s", WHOLE).pow(3).sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(grad.sum(), x)
    assert grad.abs().sum() > 0
    assert again.abs().sum() > 0
