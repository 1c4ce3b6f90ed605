"""ONNX and `torch.export` programs of every network of latents: equal to the run, at several batches."""

import warnings

import pytest
import torch

import paragan as pg
from paragan.export import formats
from paragan.export.traceable import traceable
from tests.golden.configurations import CONFIGURATIONS
from tests.tiny_run import train

pytestmark = pytest.mark.slow
NAMES = ("mlp", "sngan", "sagan", "biggan", "biggan_deep", "contragan", "reacgan", "stylegan2", "r3gan")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("zoo")
    for name in NAMES:
        train(root / name, "data.size=16", *CONFIGURATIONS[name], "model.conditional=true")
    return root


def inputs_of(sampler, count):
    images = sampler.sample(count, seed=5)
    return (sampler.latents(count, seed=5), torch.tensor(images.labels)), images.tensor


@pytest.mark.parametrize("name", NAMES)
def test_torch_program_equals_the_run(runs, tmp_path, name):
    sampler = pg.load(runs / name)
    assert formats.torch_program(traceable(sampler), tmp_path / "g.pt2") < 1e-4
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.load(tmp_path / "g.pt2").module()
    for count in (1, 7):
        inputs, images = inputs_of(sampler, count)
        torch.testing.assert_close(program(*inputs).clamp(-1, 1), images, rtol=0, atol=1e-4)  # samples are in range


@pytest.mark.parametrize("name", NAMES)
def test_onnx_model_equals_the_run(runs, tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime comes with the extra `onnx`")
    sampler = pg.load(runs / name)
    assert formats.onnx_program(traceable(sampler), tmp_path / "g.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    names = [place.name for place in session.get_inputs()]
    for count in (1, 7):
        inputs, images = inputs_of(sampler, count)
        values = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        made = torch.from_numpy(session.run(None, values)[0])
        torch.testing.assert_close(made.clamp(-1, 1), images, rtol=0, atol=1e-4)
