"""`paragan project`: an image that the generator makes is found again; files and errors."""

import json

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.export.projection import project
from paragan.runs.open_generator import open_generator
from paragan.writers.images import to_pil_image
from tests import tiny_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projected") / "run"
    tiny_run.train(folder)
    return folder


@pytest.fixture(scope="module")
def sampler(folder):
    return open_generator(folder)


def test_project_image_of_the_generator_is_found(sampler):
    target = sampler.sample(1, labels=3, seed=123).tensor[0]
    before = sampler.net.state_dict()
    start = project(sampler, target, label=3, steps=1)
    found = project(sampler, target, label=3, steps=150)
    assert found.error < 0.2 * start.error
    assert found.y_1.tolist() == [3]
    again = sampler.generate(found.z_1Z, found.y_1, mode="eval").tensor
    assert torch.allclose(again, found.image_1CHW, atol=1e-5)
    assert found.error == pytest.approx(float((again[0] - target).square().mean()), rel=1e-4)
    assert all(value.equal(before[name]) for name, value in sampler.net.state_dict().items())
    assert all(weight.grad is None for weight in sampler.net.parameters())


def test_project_repeats_with_equal_seed(sampler):
    target = sampler.sample(1, seed=7).tensor[0]
    first, second = (project(sampler, target, steps=3, seed=1) for _ in range(2))
    assert first.z_1Z.equal(second.z_1Z) and first.error == second.error


def test_project_command_writes_the_images_and_the_latent(folder, sampler, tmp_path, capsys):
    digit = ((sampler.sample(1, labels=5, seed=4).tensor[0] + 1) * 127.5).round().to(torch.uint8)
    to_pil_image(digit).save(tmp_path / "five.png")
    assert main(["project", str(folder), str(tmp_path / "five.png"), "--class", "5", "--steps", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["class"] == sampler.class_names[5] and 0 < found["error"] < 4
    with Image.open(found["image"]) as sheet:
        assert sheet.size == (2 * 34, 34)
    tensors = load_file(found["latent"])
    assert tensors["z"].shape == (1, 8) and tensors["y"].tolist() == [5]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.png",), "none.png is not a file; pass an image"),
        (("five.txt",), "five.txt"),
        (("good.png", "--class", "eleven"), "--class: unknown class 'eleven'"),
        (("good.png", "--out", "sheet.txt"), "--out: cannot write 'sheet.txt'"),
    ],
)
def test_project_invalid_input_is_one_line(folder, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.setattr("paragan.extensions.serving.write_projection.project", None)  # the input is refused before
    (tmp_path / "five.txt").write_text("no image")
    Image.new("L", (9, 9)).save(tmp_path / "good.png")
    name, *rest = words
    assert main(["project", str(folder), str(tmp_path / name), "--steps", "1", *rest]) == 2
    assert message in capsys.readouterr().err


def test_project_another_shape_is_refused(sampler):
    with pytest.raises(ConfigError, match=r"project: the image has shape \(1, 4, 4\); pass \(1, 8, 8\)"):
        project(sampler, torch.zeros(1, 4, 4))
