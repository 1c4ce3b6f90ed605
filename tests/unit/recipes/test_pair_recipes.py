"""Training on pairs as people have them: two folders, other channels, test folders, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan.cli.main import main
from tests.pair_files import picture, write
from tests.unit.datasets.test_pair_files import LAYOUTS
from tests.unit.datasets.test_pair_values import write_levels

FACADES = ("pix2pix-facades", "data.size=16", "model.width=2", "train.batch=2", "train.kimg=0.004")


def train(*words, out):
    return main(["train", *words, "every.sample_kimg=0.002", "every.score_kimg=0.002", "--out", str(out)])


@pytest.mark.parametrize(("modes", "given", "channels"), [(("L", "RGB"), 3, 1), (("L", "L"), 1, 1)])
def test_facades_train_on_two_folders_of_any_channels(tmp_path, capsys, modes, given, channels):
    write(tmp_path / "pairs", LAYOUTS["trainA"], range(6), modes)
    write(tmp_path / "pairs", ("testA/{}.png", "testB/{}.png"), range(6, 9), modes)
    assert train(*FACADES, f"data.path={tmp_path / 'pairs'}", out=tmp_path / "run") == 0
    said = capsys.readouterr().out
    assert "trainB/" in said and "trainA/ (grey)" in said
    generator = pg.load(tmp_path / "run")
    assert generator.net(None, condition=torch.zeros(1, given, 16, 16)).shape == (1, channels, 16, 16)
    assert main(["sample", str(tmp_path / "run"), "--out", str(tmp_path / "held-out.png")]) == 0
    picture(0).save(tmp_path / "mine.png")
    words = [str(tmp_path / "mine.png"), "--out", str(tmp_path / "applied")]
    assert main(["apply", str(tmp_path / "run"), *words]) == 0
    with Image.open(tmp_path / "applied" / "mine.png") as applied:
        assert applied.mode == {1: "L", 3: "RGB"}[channels]
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "exported")]) == 0
    conditions = torch.rand(2, given, 16, 16)
    exported = pg.load(tmp_path / "exported")
    made = [g.sample(2, seed=0, conditions=conditions).tensor for g in (generator, exported)]
    assert torch.equal(*made)


def test_resumed_run_of_other_channels_is_the_same(tmp_path):
    write(tmp_path / "pairs", LAYOUTS["folders"], range(6), ("L", "RGB"))
    words = (*FACADES, f"data.path={tmp_path / 'pairs'}", "data.direction=a_to_b")
    assert train(*words, out=tmp_path / "whole") == 0
    for kimg in ("0.002", "0.004"):
        assert train(*words, f"train.kimg={kimg}", out=tmp_path / "parts") == 0
    x = torch.rand(1, 1, 16, 16)
    whole, parts = (pg.load(tmp_path / name).sample(1, seed=0, conditions=x).tensor for name in ("whole", "parts"))
    assert torch.equal(whole, parts)


def test_folder_of_photos_exits_with_2(tmp_path, capsys):
    for number in range(4):
        (tmp_path / "photos").mkdir(exist_ok=True)
        picture(number, (30, 20)).save(tmp_path / "photos" / f"{number}.png")
    assert train(*FACADES, f"data.path={tmp_path / 'photos'}", out=tmp_path / "run") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "A/ and B/" in line and not (tmp_path / "run").exists()


def test_missing_partner_exits_with_2(tmp_path, capsys):
    write(tmp_path / "pairs", LAYOUTS["trainA"], range(4))
    (tmp_path / "pairs/trainB/2.png").unlink()
    assert train(*FACADES, f"data.path={tmp_path / 'pairs'}", out=tmp_path / "run") == 2
    assert "trainA/2.png" in capsys.readouterr().err


def test_translate_holds_out_test_folders_and_says_so(tmp_path, capsys):
    for folder, numbers in (("trainA", range(5)), ("trainB", range(5, 12)), ("testA", range(2)), ("testB", range(3))):
        write(tmp_path / "kinds", (folder + "/{}.png",), numbers, ("RGB",))
    words = ("translate", "data.size=16", "model.width=4", "model.blocks=1", "train.batch=2", "train.kimg=0.004")
    assert train(*words, f"data.path={tmp_path / 'kinds'}", out=tmp_path / "run") == 0
    assert "2 held out; B from testB/, trainB/: 10 images, 3 held out" in capsys.readouterr().out


def test_inputs_of_apply_and_sample_have_the_range_of_training(tmp_path):
    levels = {}
    for number in range(4):
        levels[number] = write_levels(tmp_path / f"pairs/A/{number}.png", number, 4096, np.uint16)
        (tmp_path / "pairs/B").mkdir(exist_ok=True)
        picture(number, (16, 16)).save(tmp_path / f"pairs/B/{number}.png")
    words = (*FACADES, "train.kimg=0.002", "data.direction=a_to_b", "data.condition_range=[0,4095]")
    assert train(*words, f"data.path={tmp_path / 'pairs'}", out=tmp_path / "run") == 0
    x = torch.from_numpy(levels[0].astype(np.float32) / 4095 * 2 - 1)[None, None]
    expected = pg.load(tmp_path / "run").sample(1, seed=0, conditions=x).tensor
    given = str(tmp_path / "pairs/A/0.png")
    assert main(["apply", str(tmp_path / "run"), given, "--seed", "0", "--out", str(tmp_path / "out")]) == 0
    with Image.open(tmp_path / "out/0.png") as image:
        made = torch.from_numpy(np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 127.5 - 1)
    assert (made - expected[0]).abs().max() < 0.02
