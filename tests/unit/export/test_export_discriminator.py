"""`export --player d`: its weights start another run, and its programs give the logits of the run."""

import json
import re
import shutil
import sys
from contextlib import nullcontext

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import paragan as pg
from paragan.cli.main import main
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.outputs import DiscriminatorOutput
from paragan.export.discriminator import ExportedDiscriminator
from paragan.export.generator_file import GeneratorInfo
from paragan.runs.open_run import open_run
from tests.marks import slow
from tests.tiny_run import TINY, train
from tests.unit.export.test_plain_module import load_module

MODEL = ("model=sngan", "model.width=4", "model.latent=8", "model.conditional=true")


@pytest.fixture(scope="module")
def conditional(tmp_path_factory):
    folder = tmp_path_factory.mktemp("discriminator") / "run"
    train(folder, *MODEL)
    return folder


@pytest.fixture(scope="module")
def programs(conditional, tmp_path_factory):
    """Its export in both formats, which takes seconds to trace."""
    folder = tmp_path_factory.mktemp("programs") / "export"
    words = ["--player", "d", "--format", "torch", "--format", "python", "--out", str(folder)]
    assert main(["export", str(conditional), *words]) == 0
    return folder


def discriminator_of(run):
    return open_run(run).gan.d.net.eval()


def test_logits_of_programs_are_those_of_the_run(conditional, programs):
    assert {path.suffix for path in programs.iterdir()} >= {".safetensors", ".pt2", ".py", ".md"}
    x, labels = torch.rand(6, 1, 8, 8) * 2 - 1, torch.arange(6) % 10
    with torch.no_grad():
        expected = DiscriminatorOutput.of(discriminator_of(conditional)(x, labels)).logits_B
    module = load_module(programs / "discriminator.py").load(programs / "discriminator.safetensors")
    for call in (module, torch.export.load(programs / "discriminator.pt2").module()):
        torch.testing.assert_close(call(x, labels), expected, rtol=0, atol=1e-6)


def test_weights_start_another_run(conditional, exporting, tmp_path):
    exporting(conditional, "--player", "d", "--out", tmp_path)
    weights = load_file(tmp_path / "discriminator.safetensors")
    settings = {key: yaml.safe_load(value) for key, value in (word.split("=") for word in (*TINY, *MODEL))}
    rates = {"d.optimizer.lr": 1e-12, "g.optimizer.lr": 1e-12, "seed": 3, "train.kimg": 0.016}
    start = {"d.init": str(tmp_path / "discriminator.safetensors"), "writers": ["jsonl"]}
    pg.train("digits", {**settings, **rates, **start}, out=tmp_path / "later")
    state = discriminator_of(tmp_path / "later").state_dict()
    parameters = dict(discriminator_of(conditional).named_parameters())
    trained = [name for name in weights if "weight" in name and name in parameters]
    assert trained
    for name in trained:
        torch.testing.assert_close(state[name], weights[name], rtol=0, atol=1e-6)


def test_metadata_names_classes_and_pg_load_refuses_the_file(conditional, exporting, tmp_path):
    exporting(conditional, "--player", "d", "--out", tmp_path)
    with safe_open(tmp_path / "discriminator.safetensors", "pt") as file:
        assert len(json.loads(file.metadata()["class_names"])) == 10
    with pytest.raises(CheckpointError, match="discriminator"):
        pg.load(tmp_path / "discriminator.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inputs"), [("pix2pix", ["images", "condition"]), ("superres", ["images"])])
def test_inputs_are_those_that_the_discriminator_has(image_runs, exporting, tmp_path, name, inputs):
    exporting(image_runs / name, "--player", "d", "--format", "python", "--out", tmp_path)
    module = load_module(tmp_path / "discriminator.py").load(tmp_path / "discriminator.safetensors")
    x = [torch.rand(2, 3, 32, 32) * 2 - 1 for _ in inputs]
    net = discriminator_of(image_runs / name)
    with torch.no_grad():
        expected = net(x[0], None, x[1]) if len(x) == 2 else net(*x)
    torch.testing.assert_close(module(*x), DiscriminatorOutput.of(expected).logits_B, rtol=0, atol=1e-5)


def test_labels_that_do_not_matter_are_no_input(exporting, tmp_path):
    train(tmp_path / "run", "model.conditional=false")
    exporting(tmp_path / "run", "--player", "d", "--format", "python", "--out", tmp_path / "out")
    module = load_module(tmp_path / "out" / "discriminator.py").load(tmp_path / "out" / "discriminator.safetensors")
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2,)


def test_programs_of_an_earlier_export_are_removed(conditional, programs, exporting, tmp_path):
    folder = shutil.copytree(programs, tmp_path / "export")
    lines = exporting(conditional, "--player", "d", "--out", folder)
    assert {line for line in lines if line.startswith(f"removed {folder / 'discriminator'}.p")} == set(lines[:2])
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "README.md",
        "discriminator.safetensors",
    ]


@pytest.mark.slow
def test_batch_statistics_and_audio_have_weights_but_no_programs(audio_runs, exporting, tmp_path):
    words = ("model=stylegan2", "model.width=8", "data.size=16")
    train(tmp_path / "run", *words)
    for run, reason in ((tmp_path / "run", "other images of the batch"), (audio_runs / "codec", "audio")):
        with pytest.raises((CheckpointError, ConfigError), match=reason):
            exporting(run, "--player", "d", "--format", "torch", "--out", tmp_path / "out")
        exporting(run, "--player", "d", "--out", tmp_path / "out")


def python_blocks(card):
    return re.findall(r"```python\n(.*?)```", card, re.S)


@pytest.mark.parametrize("formats", [[], slow(["python"]), ["torch", "python"]])
def test_the_lines_of_the_card_run_and_give_what_it_says(
    conditional, programs, exporting, tmp_path, monkeypatch, formats
):
    folder = programs if len(formats) == 2 else tmp_path
    if folder is tmp_path:
        words = [word for name in formats for word in ("--format", name)]
        lines = exporting(conditional, "--player", "d", *words, "--out", folder)
        assert lines[-1] == str(folder / "README.md")
    card = (folder / "README.md").read_text()
    assert "images (B, 1, 8, 8) in [-1, 1] and labels (B,) from 0 to 9" in card and "logits (B)," in card
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    blocks = python_blocks(card)
    assert len(blocks) == 1 + len(formats)
    for block in blocks:
        assert "paragan" not in block
        names = {}
        exec(block, names)  # noqa: S102 lines of a card that this test has written
        sys.modules.pop("discriminator", None)
        if "logits" in names:
            assert names["logits"].dim() == 1
        else:
            assert names["weights"].keys() == discriminator_of(conditional).state_dict().keys()


def test_a_folder_has_the_card_of_one_player(conditional, exporting, tmp_path):
    exporting(conditional, "--player", "d")
    exporting(conditional)
    assert "Discriminator" in (conditional / "export-d" / "README.md").read_text().splitlines()[0]
    for first, second in (([], ["--player", "d"]), (["--player", "d"], [])):
        folder = tmp_path / f"of{len(first)}"
        exporting(conditional, *first, "--out", folder)
        with pytest.raises(ConfigError, match="model card"):
            exporting(conditional, *second, "--out", folder)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [("pix2pix", "condition (B, 3, 32, 32)"), ("superres", "images (B, 3, ")])
def test_the_card_of_patches_says_their_shape(image_runs, exporting, tmp_path, name, text):
    exporting(image_runs / name, "--player", "d", "--out", tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert text in card and "logits (B, " in card


@pytest.mark.slow
def test_the_card_of_audio_has_no_call(audio_runs, exporting, tmp_path):
    exporting(audio_runs / "codec", "--player", "d", "--out", tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "samples of 1x" in card and len(python_blocks(card)) == 1


class Centred(nn.Module):
    """Logits of images, less their mean over the batch or not."""

    def __init__(self, is_centred):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.is_centred = is_centred

    def forward(self, x):
        logits = self.layer(x.flatten(1))
        return logits - logits.mean() if self.is_centred else logits


@pytest.mark.parametrize("is_centred", [True, False])
def test_logits_that_depend_on_the_batch_are_refused_before_tracing(is_centred):
    info = GeneratorInfo(shape=(1, 2, 2), class_names=(), step=0, images=0)
    discriminator = ExportedDiscriminator(net=Centred(is_centred), info=info, tree={})
    with pytest.raises(ConfigError, match="--format") if is_centred else nullcontext():
        discriminator.check_programs()


@pytest.mark.parametrize("words", [["--direction", "a_to_b"], ["--steps", "2"], ["--out", "d.pt2"]])
def test_options_of_generators_alone_are_refused(conditional, exporting, words):
    with pytest.raises(ConfigError, match="--player d"):
        exporting(conditional, "--player", "d", *words)


def test_exported_file_has_no_discriminator(conditional, exporting, tmp_path):
    exporting(conditional, "--out", tmp_path)
    with pytest.raises(CheckpointError, match="run folder"):
        exporting(tmp_path / "generator.safetensors", "--player", "d")
