"""Files of other projects, with random weights, loaded into networks of ours."""

from itertools import count

import pytest
import torch
from torch import nn

from paragan.checkpoint.layouts import published_weights
from paragan.checkpoint.weight_files import open_weights
from paragan.core.layout import shapes_of

SEEDS = count()


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def randomised(net: nn.Module) -> nn.Module:
    """Every tensor is random, so that none is right by its initial value."""
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn_like(value)
            value.copy_(noise.abs() + 0.5 if "var" in name else value + 0.1 * noise)
    return net.eval()


def filled(ours: nn.Module, *theirs: nn.Module, folder, wrap=lambda state: state, model="") -> dict[str, object]:
    """Load files of `theirs` into `ours` through disk; every tensor on either side must find its partner."""
    paths = [folder / f"net_{next(SEEDS)}" for _ in theirs]
    for path, net in zip(paths, theirs, strict=True):
        torch.save(wrap(net.state_dict()), path)
    weights = published_weights(open_weights(paths, "g.init.path"), shapes_of(ours.state_dict()), model=model)
    assert shapes_of(ours.state_dict()) == shapes_of(weights.tensors)
    ours.load_state_dict(weights.tensors)
    ours.eval()
    return dict(weights.settings)


def assert_same(a, b):
    assert a.std() > 1e-3
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def named(**modules) -> nn.ModuleDict:
    return nn.ModuleDict(modules)
