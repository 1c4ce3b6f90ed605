"""`init`, `g.init` and `d.init` with files of published projects: what was loaded, and which settings they need."""

import json

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from paragan import build
from paragan.build.initial_weights import load_initial_weights
from paragan.cli.main import main
from paragan.config import read_recipe
from tests.unit.checkpoint.test_published_hifigan import Vocoder, old_weight_norm
from tests.unit.checkpoint.test_published_pix2pix import judge_of_patches, nn, translator

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
WORDS = ("model.width=4", "model.blocks=1", "data.size=16", "data.held_out=0.25", "train.batch=2", "train.kimg=0.002")
QUIET = ("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0", "writers=[jsonl,console]")
ORIGIN = "weights of pytorch-CycleGAN-and-pix2pix (junyanz) with model.name=cyclegan, model.width=4, "


def save(net, path):
    """Write weights as the project does, or as safetensors, by the ending."""
    (save_file if path.suffix == ".safetensors" else torch.save)(net.state_dict(), path)
    return path


@pytest.fixture
def files(tmp_path):
    """CycleGAN's four networks, by name, and words of a run from their files on a few images."""
    nets = {f"G_{side}": translator(4, 1, False) for side in "AB"}
    nets |= {f"D_{side}": judge_of_patches(3, 4, 2, nn.InstanceNorm2d) for side in "AB"}
    for name, net in nets.items():
        save(net, tmp_path / f"latest_net_{name}.pth")
    for side in "AB":
        (tmp_path / "photos" / side).mkdir(parents=True)
        for number in range(4):
            colour = tuple(torch.randint(256, (3,)).tolist())
            Image.new("RGB", (16, 16), colour).save(tmp_path / "photos" / side / f"{number}.png")
    words = [f"data.path={tmp_path / 'photos'}", *WORDS, *QUIET]
    for player in "GD":
        paths = ", ".join(str(tmp_path / f"latest_net_{player}_{side}.pth") for side in "AB")
        words.append(f"{player.lower()}.init={{path: [{paths}]}}")
    return nets, words


def started(folder, recipe, *words):
    config = read_recipe(recipe, [*words])
    trainer = build.trainer(config, folder, print, lambda: False)
    return trainer, *load_initial_weights(config, trainer, None, print)


def test_cyclegan_starts_from_its_four_files(tmp_path, files):
    nets, words = files
    trainer, config, lines = started(tmp_path / "run", "translate", *words)
    assert lines[0] == f"{ORIGIN}model.blocks=1"
    assert lines[2] == f"{ORIGIN}model.d_halvings=2"
    assert "G all 32 tensors" in lines[1] and lines[1].startswith("g.init from")
    assert "D all 12 tensors" in lines[3] and lines[3].startswith("d.init from")
    a = torch.randn(1, 3, 16, 16)
    g = trainer.players["g"]
    for net in (g.net, *([g.ema.net] if g.ema else [])):
        torch.testing.assert_close(net.eval().to_b(a), nets["G_A"].eval()["model"](a))
    assert len(config.g.init.sha256) == 64


def test_a_run_from_published_weights_records_it(tmp_path, files):
    assert main(["train", "translate", *files[1], "--out", str(tmp_path / "run")]) == 0
    record = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    texts = [line["text"] for line in record if line["kind"] == "event" and ORIGIN in line["text"]]
    assert len(texts) == 2


@pytest.mark.parametrize("setting", ["model.width=8", "model.blocks=2", "model.d_halvings=1"])
def test_other_settings_than_those_of_the_file_are_one_line(tmp_path, files, capsys, setting):
    capsys.readouterr()
    assert main(["train", "translate", *files[1], setting, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and "does not fit" in error
    key, _, here = setting.partition("=")
    assert f"{key}=" in error and f"(here {here})" in error


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_a_file_for_the_whole_run_is_of_the_player_that_its_names_tell(tmp_path, files, ending):
    words = [word for word in files[1] if ".init=" not in word]
    path = save(files[0]["G_A"], tmp_path / f"net.{ending}")
    trainer, _, lines = started(tmp_path / "run", "translate", *words, f"init={path}")
    assert lines[0] == f"{ORIGIN}model.blocks=1"
    assert "G 16 of 32 tensors" in lines[1] and lines[1].endswith("D as initialised") and "None" not in lines[1]
    a = torch.randn(1, 3, 16, 16)
    torch.testing.assert_close(trainer.players["g"].net.eval().to_b(a), files[0]["G_A"].eval()["model"](a))


@pytest.mark.parametrize("setting", ["init", "g.init"])
@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{not json......", b"{" * 99])
def test_a_file_that_is_none_is_one_line(tmp_path, files, capsys, setting, content):
    (tmp_path / "net.safetensors").write_bytes(content)
    words = [word for word in files[1] if ".init=" not in word]
    word = f"{setting}={tmp_path / 'net.safetensors'}"
    capsys.readouterr()
    assert main(["train", "translate", *words, word, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and f"{setting}.path" in error and "net.safetensors" in error


@pytest.mark.slow
def test_a_vocoder_starts_from_hifigan(tmp_path):
    net = Vocoder(8, (8, 8), [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))], old_weight_norm, pairs=False).eval()
    torch.save({"generator": net.state_dict()}, tmp_path / "g_02500000")
    words = ["model.flavour=v3", "model.width=8", "model.rates=[8,8]", "data.n_mels=80", "data.utterances=8"]
    trainer, _, lines = started(tmp_path, "vocoder", *words, f"g.init={tmp_path / 'g_02500000'}")
    assert lines[0].endswith("model.flavour=v3, model.width=8, model.n_mels=80, model.rates=(8, 8)")
    mel = torch.randn(1, 80, 5)
    torch.testing.assert_close(trainer.players["g"].net.eval()(mel), net(mel))
