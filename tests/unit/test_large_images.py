"""Large images: sampling in parts, freed blocks that return to the system, and copies inside of convolutions."""

from __future__ import annotations

import pytest
import torch

from benchmarks import large_images
from paragan.core import registry
from paragan.core.types import Side
from paragan.game import sampling
from paragan.game.network import CalledNetwork
from paragan.game.sampling import generate_images
from paragan.hardware import heap
from paragan.layers.init import initialise
from paragan.scaling.heap_model import HeapModel
from paragan.scaling.workspace import workspace_bytes

CPU = torch.device("cpu")
FORWARD = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default
SIDE = 32
MAP = SIDE * SIDE * 4  # bytes of a channel


def test_generate_images_of_large_images_are_those_of_one_call(monkeypatch):
    """Three of 1024 px are as many pixels as 250 of 128 px; here, three of 64 px."""
    assert sampling._PIXELS // 1024**2 == 3
    monkeypatch.setattr(sampling, "_PIXELS", 3 * 64**2)
    module = registry.load_module("models", "stylegan2")
    net = module.Generator(module.Options(width=2, base=128, latent=4, style=4, conditional=False), (3, 64, 64))
    net.double()
    initialise(net, 0, Side.G.value)
    rows = []
    net.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    z = torch.randn(5, 4, dtype=torch.float64)
    images = generate_images(CalledNetwork(net), z, None)
    assert rows == [1, 3, 2]  # the first for its size
    alone = generate_images(CalledNetwork(net), z[3:4], None)
    torch.testing.assert_close(alone, images[3:4], rtol=0, atol=1e-10)
    assert rows == [1, 3, 2, 1]


def test_blocks_are_mapped_for_large_images_on_a_cpu_only():
    assert heap.mapped_from(CPU, (3, 1024, 1024)) == 4 << 20
    assert heap.mapped_from(CPU, (3, 256, 1024)) is None
    assert heap.mapped_from(torch.device("meta"), (3, 1024, 1024)) is None
    assert heap.mapped_from(CPU, (16_000,)) is None  # sound


def test_heap_with_a_fixed_threshold_returns_blocks_that_another_reuses():
    resident = []
    for model in (HeapModel(), HeapModel(4 << 20)):
        for number, size in enumerate((9 << 20, 8 << 20)):  # the first raises a threshold that is not fixed
            model.allocate(number, size)
            model.release(number)
        resident.append(model.resident_bytes)
    assert resident[0] >= 8 << 20
    assert resident[1] == 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "maps"),
    [(8, 8, 16), (16, 16, 16), (16, 32, 32), (32, 16, 32)],  # blocks of 16 channels; few inputs are read in place
)
def test_workspace_of_a_forward_convolution_is_its_blocks_without_the_result(inputs, outputs, maps):
    x, weight, y = maps_of(inputs, outputs)
    found = workspace_bytes(FORWARD, (x, weight, None, *settings(1)), y)
    blocks = 0 if inputs < 16 else weight.nbytes
    assert maps * MAP <= found <= maps * MAP + blocks


def test_workspace_of_a_backward_convolution_depends_on_the_gradients():
    x, weight, y = maps_of(8, 8)
    both = workspace_bytes(BACKWARD, (y, x, weight, None, *settings(1), [True, True, False]), (x, weight, None))
    weights = workspace_bytes(BACKWARD, (y, x, weight, None, *settings(1), [False, True, False]), (None, weight, None))
    assert weights == 16 * MAP  # blocks of 8 channels
    assert 24 * MAP <= both <= 25 * MAP + 16 * 16 * 9 * 4


def test_workspace_of_a_kernel_as_large_as_its_map_has_no_padded_input_channels():
    """Double backward at batch 1 computes gradients of weights by such kernels."""
    x = torch.empty(8, 1, SIDE, SIDE)
    weight = torch.empty(8, 1, SIDE, SIDE)
    y = torch.empty(8, 8, 3, 3)
    found = workspace_bytes(FORWARD, (x, weight, None, *settings(1)), y)
    assert 16 * MAP <= found <= 16 * MAP + 8 * 16 * 9 * 4


def maps_of(inputs, outputs):
    shape = (SIDE, SIDE)
    return torch.empty(1, inputs, *shape), torch.empty(outputs, inputs, 3, 3), torch.empty(1, outputs, *shape)


def settings(padding):
    return [1, 1], [padding, padding], [1, 1], False, [0, 0], 1


def test_a_case_of_an_accelerator_says_why_it_is_not_run(monkeypatch, capsys):
    case = large_images.CASES["biggan, full width, as in the recipe"]
    monkeypatch.setattr(large_images.devices, "select_device", lambda: CPU)
    assert large_images.reason_not_to_run(case).startswith("no GPU")
    row = large_images.row_of("biggan, full width, as in the recipe")
    assert row["result"] == "not run: no GPU; it needs one of 60 GB"
    assert "not run: no GPU" in capsys.readouterr().out
