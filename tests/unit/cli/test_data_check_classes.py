"""`paragan data check` of classes that cannot be trained on or scored: what it says is what a run then does."""

import shlex

import numpy as np
import pytest

from paragan.cli.main import main
from tests.unit.cli.test_data_check import NOISE, put, run


@pytest.mark.parametrize("layout", ["40 classes", "other classes in val", "arrays", "labels off"])
def test_printed_command_trains_where_no_class_has_training_and_held_out_images(tmp_path, capsys, layout):
    path = tmp_path / "mine"
    if layout == "arrays":
        path = tmp_path / "mine.npz"
        np.savez(path, images=NOISE.integers(0, 256, (9, 16, 16, 3), np.uint8), labels=np.arange(9))
    elif layout == "other classes in val":
        for name in ("train/a/0", "train/a/1", "train/b/0", "val/q/0"):
            put(path / f"{name}.png")
    else:
        for number in range(40):
            put(path / f"class-{number}" / "0.png")
    _, out, _ = run(capsys, path, *(["data.labels=false"] if layout == "labels off" else []))
    assert ("no class has training and held-out images" in out) == (layout != "labels off")
    assert ("labels drawn as in the data" in out) == (layout != "labels off")
    assert "it is trained on" not in out and "are left out" not in out
    command = shlex.split(out.partition("To train: paragan ")[2])
    assert command.count("data.labels=false") == 1
    short = ["train.batch=4", "train.kimg=0.008", "train.threads=1", "evaluation.features=null"]
    assert main([*command, *short, "--out", str(tmp_path / "run")]) == 0


def test_class_with_its_only_image_held_out_is_left_out_and_not_said_to_be_trained_on(tmp_path, capsys):
    for name in ("train/a/0", "train/a/1", "train/b/0", "train/single/0", "val/a/0", "val/b/0", "val/q/0"):
        put(tmp_path / f"{name}.png")
    _, out, _ = run(capsys, tmp_path)
    assert "classes without training images are left out, with 1 of the held-out images: 'q'" in out
    assert "holds out 2;" in out and "4 train, 2 held out" in out  # as training says, too
    assert "classes of one image: 'single'; it is trained on" in out
    assert "data.labels" not in out.partition("To train: ")[2]
