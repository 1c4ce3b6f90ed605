"""Large images: sampling in parts, and freed blocks that return to the system."""

from types import SimpleNamespace

import torch

from paragan.core import registry
from paragan.core.types import Side
from paragan.game import sampling
from paragan.game.network import CalledNetwork
from paragan.game.sampling import generate_images
from paragan.hardware import heap
from paragan.layers.init import initialise

CPU = torch.device("cpu")


def test_generate_images_of_large_images_are_those_of_one_call(monkeypatch):
    """Three of 1024 px are as many pixels as 250 of 128 px; here, three of 64 px."""
    assert sampling._MAX_PIXELS // 1024**2 == 3
    monkeypatch.setattr(sampling, "_MAX_PIXELS", 3 * 64**2)
    module = registry.load_module("models", "stylegan2")
    net = module.Generator(module.Options(width=2, base=128, latent=4, style=4, conditional=False), (3, 64, 64))
    net.double()
    initialise(net, 0, Side.G.value)
    rows = []
    net.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    z = torch.randn(5, 4, dtype=torch.float64)
    images = generate_images(CalledNetwork(module=net), z, None)
    assert rows == [1, 3, 2]  # the first for its size
    alone = generate_images(CalledNetwork(module=net), z[3:4], None)
    torch.testing.assert_close(alone, images[3:4], rtol=0, atol=1e-10)
    assert rows == [1, 3, 2, 1]


def test_blocks_are_mapped_for_large_images_on_a_cpu_only(monkeypatch):
    calls = []
    library = SimpleNamespace(mallopt=lambda name, value: calls.append(value))
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: library)
    sound = (16_000,)
    for device, shape in [(CPU, (3, 256, 1024)), (torch.device("meta"), (3, 1024, 1024)), (CPU, sound), (CPU, ())]:
        heap.return_large_blocks(device, shape)
    assert calls == []
    heap.return_large_blocks(CPU, (3, 1024, 1024))
    assert calls == [4 << 20]
