"""A trained FastGAN as safetensors, and as programs of torch, ONNX and Python: each computes the run's images."""

import importlib.util
import warnings

import pytest
import torch

import paragan as pg
from tests.tiny_run import train
from tests.unit.export.image_runs import noise

WORDS = ("train.batch=4", "train.kimg=0.008", "loss=hinge", "penalties=[reconstruction]", "every.score_kimg=0")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("fastgan")
    (root / "images").mkdir()
    for number in range(8):
        noise(64, 64, number).save(root / "images" / f"{number}.png")
    words = ("data=folder", f"data.path={root / 'images'}", "data.size=64", *WORDS)  # 64 px: with an excited map
    train(root / "run", "model={name: fastgan, width: 4, latent: 8}", *words)
    return root / "run"


@pytest.fixture(scope="module")
def images(run):
    return pg.load(run).sample(3, seed=5)


def near(images) -> dict[str, float]:
    return {"rtol": 0, "atol": 1e-3 * float(images.tensor.std())}


def test_the_average_is_what_is_sampled_and_exported(run, images, exporting, tmp_path):
    exporting(run, "--out", tmp_path / "g.safetensors")
    assert torch.equal(pg.load(tmp_path / "g.safetensors").sample(3, seed=5).tensor, images.tensor)
    assert images.tensor.shape == (3, 3, 64, 64)
    assert images.tensor.std() > 1e-5  # after two steps


@pytest.mark.slow
def test_torch_program_equals_the_network(run, images, exporting, tmp_path):
    exporting(run, "--out", tmp_path / "g.pt2")
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.load(tmp_path / "g.pt2").module()
    z = pg.load(run).latents(3, seed=5)
    torch.testing.assert_close(program(z), images.tensor, **near(images))


@pytest.mark.slow
def test_onnx_program_equals_the_network(run, images, exporting, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime comes with the extra `onnx`")
    exporting(run, "--out", tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    (name,) = (entry.name for entry in session.get_inputs())
    (found,) = session.run(None, {name: pg.load(run).latents(3, seed=5).numpy()})
    torch.testing.assert_close(torch.from_numpy(found), images.tensor, **near(images))


@pytest.mark.slow
def test_python_source_equals_the_network(run, images, exporting, tmp_path):
    exporting(run, "--format", "python", "--out", tmp_path)
    spec = importlib.util.spec_from_file_location("generator", tmp_path / "generator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    generator = module.load(tmp_path / "generator.safetensors")
    torch.testing.assert_close(generator(pg.load(run).latents(3, seed=5)), images.tensor, **near(images))
