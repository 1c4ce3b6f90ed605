"""Programs of generators of images from images, and of audio: equal to the network at two sizes, without paragan."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import paragan as pg
from paragan.core.errors import ConfigError
from paragan.export import formats
from paragan.export.traceable import traceable
from tests.unit.export.image_runs import RUNS

SIZES = [(1, 3, 32, 64), (2, 3, 96, 32)]


def output_of(sampler, name, x):
    net = sampler.net.to_b if name == "translate" else sampler.net
    with torch.no_grad():
        made = net(None, None, x) if name == "pix2pix" else net(x)
    return getattr(made, "images", made)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "vqgan" else pytest.mark.slow) for name in RUNS]
)
def test_torch_program_takes_any_size(image_runs, programs_folder, name):
    sampler = pg.load(image_runs / name)
    words = ("--direction", "a_to_b") if name == "translate" else ()
    program = torch.export.load(programs_folder(name, *words) / f"{'a_to_b' if words else 'generator'}.pt2").module()
    for size in SIZES:
        x = torch.rand(size) * 2 - 1
        torch.testing.assert_close(program(x), output_of(sampler, name, x), rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_onnx_model_takes_any_size(image_runs, tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    sampler = pg.load(image_runs / name)
    direction = "a_to_b" if name == "translate" else None
    assert formats.onnx_program(traceable(sampler, direction), tmp_path / "g.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    (taken,) = [place.name for place in session.get_inputs()]
    for size in SIZES:
        x = torch.rand(size) * 2 - 1
        (made,) = session.run(None, {taken: x.numpy()})
        assert np.abs(made - output_of(sampler, name, x).numpy()).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "channels"), [("vocoder", 40), ("codec", 1)])
@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_programs_of_audio_take_any_length(audio_runs, tmp_path, name, channels, kind):
    sampler = pg.load(audio_runs / name)
    path = tmp_path / "g"
    write = formats.torch_program if kind == "torch" else formats.onnx_program
    assert write(traceable(sampler), path) < 1e-4
    for length in (64 * 9, 64 * 20):
        x = torch.rand(2, channels, length) * 2 - 1
        if kind == "torch":
            made = torch.export.load(path).module()(x)
        else:
            onnxruntime = pytest.importorskip("onnxruntime")
            session = onnxruntime.InferenceSession(path)
            made = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
        torch.testing.assert_close(made, output_of(sampler, name, x), rtol=0, atol=1e-4)


def test_generator_of_two_directions_needs_one(image_runs):
    with pytest.raises(ConfigError, match="a_to_b and b_to_a"):
        traceable(pg.load(image_runs / "translate"))
    with pytest.raises(ConfigError, match="direction"):
        traceable(pg.load(image_runs / "superres"), "a_to_b")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("superres", ["--direction", "a_to_b"], "^--direction is for programs"),
        ("translate", ["--direction", "a_to_b", "--format", "safetensors"], "^--direction is for programs"),
        ("translate", ["--format", "python"], "^export: .*a_to_b and b_to_a"),
        ("translate", ["--format", "torch", "--direction", "c"], "^export: .*a_to_b and b_to_a"),
    ],
)
def test_direction_that_does_not_apply_is_refused_first(image_runs, exporting, tmp_path, capfd, name, words, message):
    with pytest.raises(ConfigError, match=message):
        exporting(image_runs / name, *words, "--out", tmp_path / "out")
    assert "tracing" not in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_card_of_directions_loads_both_programs_with_torch_alone(image_runs, exporting, tmp_path):
    for direction in ("a_to_b", "b_to_a"):
        exporting(image_runs / "translate", "--format", "torch", "--direction", direction, "--out", tmp_path)
    assert {path.name for path in tmp_path.glob("*.pt2")} == {"a_to_b.pt2", "b_to_a.pt2"}
    blocks = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    programs = [block for block in blocks if "torch.export.load" in block]
    assert len(programs) == 2
    for block in programs:
        code = f"import sys; sys.modules['paragan'] = None\n{block}\nprint(tuple(images.shape))"
        ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("(3, 3, ")
