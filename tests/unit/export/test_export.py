"""`paragan export`: what is in the files, what is not, and that other formats are the same network."""

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

import paragan as pg
from paragan.config import read_recipe
from paragan.core import files
from paragan.core.errors import CheckpointError, ConfigError
from paragan.export import formats, generator_file
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.export.traceable import traceable
from tests.tiny_run import newest, rewrite_state, train

NETS = {
    "dcgan": (),
    "sngan": ("model=sngan", "model.width=4", "model.latent=8"),
    "mlp": ("model=mlp", "model.latent=8", "model.g_widths=[16]", "model.d_widths=[8]"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    train(folder, "g.ema.half_life_kimg=0.1")
    protocol = {"extractor": "judge", "extractor_accuracy": 0.876}
    score = {"step": 4, "images": 64, "fd[judge]": 12.5, "num_images": 500, "protocol": protocol}
    score["real"] = {"fd[judge]": 0.25}
    (folder / "score.json").write_text(json.dumps(score))
    return folder


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_export_folder_has_weights_samples_and_card(run, exporting):
    folder = run / "export"
    assert exporting(run) == [str(folder / name) for name in ("generator.safetensors", "samples.png", "README.md")]
    with Image.open(folder / "samples.png") as picture:
        assert picture.size == (10 * 34, 10 * 34)
    card = (folder / "README.md").read_text()
    for text in (
        "# dcgan trained on digits",
        "fd\\[judge\\] | 12.5 | 0.25 |",
        "extractor: judge",
        "500 images",
        "Licence",
    ):
        assert text in card
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "generator.safetensors", "samples.png"]


def test_export_card_code_runs(run, exporting, tmp_path, monkeypatch):
    exporting(run, "--out", tmp_path / "there")
    monkeypatch.chdir(tmp_path / "there")
    block = (tmp_path / "there" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert len(block.splitlines()) == 3
    exec(block, {})  # noqa: S102 our own card
    assert (tmp_path / "there" / "mine.png").exists()


def test_export_metadata_is_complete_text(run, exporting, tmp_path):
    exporting(run, "--out", tmp_path / "g.safetensors")
    stored = metadata(tmp_path / "g.safetensors")
    assert all(isinstance(value, str) for value in stored.values())
    assert [stored[key] for key in ("step", "kimg", "shape", "paragan")] == ["4", "0.064", "[1, 8, 8]", pg.__version__]
    assert json.loads(stored["class_names"]) == [str(n) for n in range(10)]
    (tmp_path / "config.yaml").write_text(stored["config"])
    assert read_recipe(str(tmp_path / "config.yaml"), outside=()) == read_recipe(str(run / "config.yaml"))
    assert stored["sha256"] == generator_file.fingerprint(pg.load(run).net.state_dict())
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["g.safetensors"]


def test_export_of_exported_file_is_equal(run, exporting, tmp_path):
    exporting(run, "--out", tmp_path / "g.safetensors")
    exporting(tmp_path / "g.safetensors", "--out", tmp_path / "again")
    assert metadata(tmp_path / "again" / "generator.safetensors") == metadata(tmp_path / "g.safetensors")
    assert "fd\\[judge\\] | 12.5" in (tmp_path / "again" / "README.md").read_text()


def test_export_card_names_score_of_other_step(run, exporting, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    score = json.loads((run / "score.json").read_text())
    later = "at step 2. These weights are of step"
    no_score = "This run was not scored."
    texts = {json.dumps({**score, "step": 2}): later, "[1]": no_score, "{cut": no_score, "[" * 100_000: no_score}
    for text, sentence in texts.items():
        (tmp_path / "run" / "score.json").write_text(text)
        exporting(tmp_path / "run")
        assert sentence in (tmp_path / "run" / "export" / "README.md").read_text()


def test_export_config_has_no_local_folders(exporting, tmp_path):
    for number in range(24):
        file = tmp_path / "jane" / "zoo" / ("<script>alert(1)</script>a", "b|c`")[number % 2][:9] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 90).save(file)
    train(tmp_path / "run", "data=folder", f"data.path={tmp_path / 'jane' / 'zoo'}", "data.size=8")
    exporting(tmp_path / "run")
    found = (tmp_path / "run" / "export" / "generator.safetensors").read_bytes()
    assert b"jane" not in found
    assert (
        json.loads(metadata(tmp_path / "run" / "export" / "generator.safetensors")["config"])["data"]["path"] == "zoo"
    )
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "<script" not in card
    assert "b\\|c\\`" in card
    assert pg.load(tmp_path / "run" / "export" / "generator.safetensors").sample(1, labels="b|c`")


@pytest.mark.parametrize("name", NETS)
def test_export_torch_program_equals_network(name, exporting, tmp_path):
    train(tmp_path / "run", *NETS[name], "model.conditional=true")
    (line,) = exporting(tmp_path / "run", "--out", tmp_path / "g.pt2")
    assert "differs from the network by at most" in line
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.load(tmp_path / "g.pt2").module()
    images = pg.load(tmp_path / "run").sample(7, seed=5)
    z, y = pg.load(tmp_path / "run").latents(7, seed=5), torch.tensor(images.labels)
    assert torch.allclose(program(z, y), images.tensor, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sngan", "mlp"])  # dcgan: test_export_folder.py
def test_export_onnx_model_equals_every_network(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    train(tmp_path / "run", *NETS[name], "model.conditional=true")
    sampler = pg.load(tmp_path / "run")
    assert formats.onnx_program(traceable(sampler), tmp_path / "g.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    for count in (1, 7):
        images = sampler.sample(count, seed=5)
        inputs = {"z": sampler.latents(count, seed=5).numpy(), "labels": torch.tensor(images.labels).numpy()}
        assert torch.allclose(torch.from_numpy(session.run(None, inputs)[0]), images.tensor, atol=1e-4)


def test_export_program_that_differs_is_refused(run, tmp_path, monkeypatch):
    sampler = pg.load(run)

    def trace(network):
        other = formats.TensorsOnly(Noisy(network.net.network)).eval()
        return type("Program", (), {"module": lambda self: other})()

    monkeypatch.setattr(formats, "_trace", trace)
    monkeypatch.setattr(torch.export, "save", lambda program, file: file.write(b"x"))
    with pytest.raises(CheckpointError, match=r"g\.pt2 was not written: its output differs by 0\.02"):
        formats.torch_program(traceable(sampler), tmp_path / "g.pt2")
    monkeypatch.setattr(Noisy, "by", float("nan"))
    with pytest.raises(CheckpointError, match="differs by inf"):
        formats.torch_program(traceable(sampler), tmp_path / "g.pt2")
    assert list(tmp_path.iterdir()) == []


class Noisy(nn.Module):
    by = 0.02

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, z, y):
        return self.net(z, y) + self.by


class Unruly(nn.Module):
    """Its way depends on the numbers."""

    latent = 4

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, z):
        return self.linear(z) if z.sum() > 0 else z


def test_export_untraceable_network_is_one_line(tmp_path):
    sampler = Sampler(
        net=Unruly(), info=GeneratorInfo(shape=(1, 2, 2), class_names=(), step=0, images=0), seed=0, config=None
    )
    with pytest.raises(CheckpointError, match=r"^export: Unruly cannot be traced \(.*\); export safetensors$"):
        formats.torch_program(traceable(sampler), tmp_path / "g.pt2")
    assert list(tmp_path.iterdir()) == []


def test_export_onnx_without_extra_is_one_line(run, exporting, monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "_ONNX", ("onnx", "no_such_package"))
    with pytest.raises(ConfigError, match=r"no_such_package; install: \S+ -m pip install"):
        exporting(run, "--format", "onnx", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "g.pth"], r"--out: cannot export to 'g\.pth'; use a folder"),
        (["--out", "g.pt2", "--format", "onnx"], r"--out: 'g\.pt2' takes one format; use a folder for several"),
    ],
)
def test_export_invalid_options_are_one_line(run, exporting, words, message):
    with pytest.raises(ConfigError, match=message):
        exporting(run, *words)


def test_export_failure_keeps_previous_file(run, exporting, tmp_path, monkeypatch):
    target = tmp_path / "g.safetensors"
    exporting(run, "--out", target)
    before = target.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)  # after the new content was written
    with pytest.raises(CheckpointError, match="no space left"):
        exporting(run, "--out", target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["g.safetensors"]


def test_export_uses_newest_checkpoint(run, exporting, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    shutil.copytree(newest(run), tmp_path / "run" / "checkpoints" / "step-000000009")
    rewrite_state(tmp_path / "run", lambda values: values["clock"].update(step=9, images=144))
    exporting(tmp_path / "run", "--out", tmp_path / "g.safetensors")
    assert metadata(tmp_path / "g.safetensors")["step"] == "9"
    assert pg.load(tmp_path / "g.safetensors").info.images == 144
