"""The number format and layout of a network."""

import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.game.network import CalledNetwork, Calling
from paragan.hardware import precision

CPU = torch.device("cpu")
CONV, DENSE = nn.Conv2d(1, 2, 3), nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("cpuinfo", "fast"),
    [
        ("vendor_id: GenuineIntel\nflags: avx512f avx512_bf16", False),
        ("vendor_id: GenuineIntel\nflags: avx512_bf16 amx_bf16 amx_tile", True),
        ("vendor_id: AuthenticAMD\nflags: avx512_bf16", True),
        ("vendor_id: AuthenticAMD\nflags: avx2", False),
        ("", False),
    ],
)
def test_auto_follows_what_the_processor_is_fast_at(cpuinfo, fast, monkeypatch):
    monkeypatch.setattr(precision, "_cpuinfo", lambda: cpuinfo)
    assert precision.dtype_of("auto", CONV, CPU, Side.D) == (torch.bfloat16 if fast else None)
    assert precision.dtype_of("auto", CONV, CPU, Side.G) is None
    assert precision.dtype_of("auto", CONV, CPU, Side("fake_score")) is None
    assert precision.dtype_of("auto", DENSE, CPU, Side.D) is None


def test_requested_precision_is_used():
    assert precision.dtype_of("fp32", CONV, CPU, Side.G) is None
    assert precision.dtype_of("bf16", DENSE, CPU, Side.G) is torch.bfloat16
    with pytest.raises(ConfigError, match="fp16 is 20 times slower"):
        precision.dtype_of("fp16", CONV, CPU, Side.G)
    assert precision.wants_channels_last(None, CONV)
    assert not precision.wants_channels_last(None, DENSE)
    assert not precision.wants_channels_last(False, CONV)


def test_a_called_network_computes_low_and_answers_in_float32():
    seen = {}
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    net.register_forward_hook(lambda module, inputs, output: seen.update(dtype=output.dtype, x=inputs[0]))
    called = CalledNetwork(module=net, calling=Calling(torch.bfloat16, channels_last=True))
    out = called(torch.randn(2, 3, 8, 8))
    assert seen["dtype"] is torch.bfloat16
    assert seen["x"].is_contiguous(memory_format=torch.channels_last)
    assert out.dtype is torch.float32
    assert torch.allclose(out, CalledNetwork(module=net)(seen["x"]), atol=0.05)


def test_frozen_weights_are_restored_also_after_an_error():
    net = nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    called = CalledNetwork(module=net)
    inside = []

    def fail() -> None:
        with called.frozen():
            inside.append(net.weight.requires_grad)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert inside == [False]
    assert net.weight.requires_grad
    assert not net.bias.requires_grad
