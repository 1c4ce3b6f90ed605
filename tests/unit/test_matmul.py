"""Dense layers multiplied by oneDNN: the same numbers as torch's own, derivatives of any order, and no weight moved."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from paragan import build
from paragan.cli.main import main
from paragan.coevolution.executors import stacked
from paragan.config import load
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.hardware import products
from tests.tiny_run import newest

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not products.available(CPU), reason="this torch is built without oneDNN")
WORDS = ("model={name: mlp, latent: 16, g_widths: [256], d_widths: [256]}", "data.size=8", "train.batch=100")
PLAIN = (*WORDS, "penalties=[]", "augment=null")


@pytest.fixture
def asked(monkeypatch):
    """Shapes of the products that oneDNN was asked for."""
    seen, ops = [], products._ops()

    class Seen:
        @staticmethod
        def _linear_pointwise(a, b, *rest):
            seen.append((*a.shape, len(b)))
            return ops._linear_pointwise(a, b, *rest)

    monkeypatch.setattr(products, "_ops", Seen)
    return seen


def tensors(*shapes, dtype=torch.float32):
    draws = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draws, dtype=dtype).requires_grad_() for shape in shapes]


def derivatives(call, inputs):
    """The value, its slopes, and theirs."""
    y = call(*inputs)
    first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(slope.square().sum() for slope in first), inputs)
    return [y, *first, *second]


def test_it_is_linear_to_second_order(asked):
    inputs = tensors((100, 96), (128, 96), (128,))
    found, wanted = (derivatives(call, inputs) for call in (products.MatmulBackend.apply, F.linear))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
    assert asked[:3] == [(100, 96, 128), (100, 128, 96), (128, 100, 96)]  # its own, of its input, of its weight


def test_its_algebra_in_float64():
    """Small ones are torch's own, with the same derivatives."""
    inputs = tensors((3, 4), (2, 4), (2,), dtype=torch.float64)
    assert torch.autograd.gradcheck(products.MatmulBackend.apply, inputs)
    assert torch.autograd.gradgradcheck(products.MatmulBackend.apply, inputs)
    assert torch.equal(products.MatmulBackend.apply(*inputs[:2]), F.linear(*inputs[:2]))


def test_only_what_is_float32_and_large_is_asked_for(asked):
    layer = nn.Linear(512, 64)
    products.multiply_by(layer, "onednn", CPU)
    assert isinstance(layer, products.Linear) and list(layer.state_dict()) == ["weight", "bias"]
    layer(torch.randn(2, 512)), layer(torch.randn(2, 64, 512))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(64, 512)).dtype == torch.bfloat16
    nn.Sequential(layer).double()(torch.randn(64, 512, dtype=torch.float64))
    assert not asked
    layer.float()(torch.randn(64, 512))
    assert asked == [(64, 512, 64)]


def test_layers_of_another_kind_are_left_alone():
    class Own(nn.Linear):
        pass

    net = nn.ModuleList([Own(2, 2), nn.Linear(2, 2)])
    products.multiply_by(net, "native", CPU)
    assert type(net[1]) is nn.Linear
    products.multiply_by(net, "onednn", CPU)
    assert [type(layer) for layer in net] == [Own, products.Linear]


def test_compiled_it_is_the_compilers(asked):
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    products.multiply_by(net, "onednn", CPU)
    x = torch.randn(64, 512)
    call = torch.compile(net, backend="aot_eager")
    torch.testing.assert_close(call(x), net(x), rtol=1e-4, atol=1e-4)
    assert len(asked) == 2  # as it is written


def test_a_device_without_it_is_told():
    told = "^matmul: found onednn on the device meta, which has none; set matmul=native$"
    with pytest.raises(ConfigError, match=told):
        products.multiply_by(nn.Linear(2, 2), "onednn", torch.device("meta"))


def test_a_run_trains_with_it_as_without(tmp_path, asked):
    """G's products alone: steps differ by rounding, or not at all where native products are oneDNN's too."""
    found = {}
    for name in ("native", "onednn"):
        assert not asked
        words = (*PLAIN, f"g.matmul={name}", "train.kimg=0.3", "train.threads=1", "score.extractor=none")
        assert main(["train", "digits", *words, "--out", str(tmp_path / name)]) == 0
        found[name] = load_file(newest(tmp_path / name) / "g.safetensors")
    assert asked and found["native"].keys() == found["onednn"].keys()
    apart = [float((found["native"][key] - found["onednn"][key]).abs().max()) for key in found["native"]]
    assert max(apart) < 1e-3


def test_cells_that_multiply_by_it_are_not_stacked():
    config = load("digits", [*PLAIN, "d.matmul=onednn"])
    game = build.gan(config, build.open_data(config), CPU)

    class Cell:
        scheme, players, gan, losses, seats = object(), {Side.G: game.g, Side.D: game.d}, game, (), ()

    assert stacked.unstackable_reason([Cell]) == "D multiplies by onednn"
