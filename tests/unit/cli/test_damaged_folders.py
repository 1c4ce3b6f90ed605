"""Damaged and strange run folders: the message names the cure, and the cure works."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import paragan as pg
from paragan.cli.main import main
from paragan.config import parse_recipe
from paragan.core.errors import ConfigError, DataError
from paragan.datasets import npz
from tests.tiny_run import SMALL, TINY, newest

WORDS = ("train", "digits", *TINY, *SMALL, "every.save_kimg=0.016", "--out")
HUGE = 10**399


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run of 4 of 8 steps, and the weights of one that was never stopped."""
    folder = tmp_path_factory.mktemp("damaged")
    assert main([*WORDS, str(folder / "half")]) == 0
    assert main([*WORDS, str(folder / "whole"), "train.kimg=0.128"]) == 0
    return folder / "half", weights(folder / "whole")


@pytest.fixture
def run(half, tmp_path):
    return Path(shutil.copytree(half[0], tmp_path / "run"))


def weights(run):
    return {path.name: path.read_bytes() for path in newest(run).glob("*.safetensors")}


def resumed(run):
    return main([*WORDS, str(run), "train.kimg=0.128"])


def test_a_run_whose_config_has_a_flipped_bit_resumes_bit_for_bit_without_that_file(half, run, capfd):
    config = run / "config.yaml"
    content = bytearray(config.read_bytes())
    content[content.index(b"batch:") + len(b"batch")] ^= 1  # the colon
    config.write_bytes(content)
    assert resumed(run) == 2
    *_, line = capfd.readouterr().err.splitlines()  # before it: the warning that the file was edited
    assert line.startswith("cannot read ")
    assert "delete it and run the same command again, which resumes from the checkpoints" in line
    config.unlink()
    assert resumed(run) == 0
    assert "resuming at step 4" in capfd.readouterr().out
    assert weights(run) == half[1]


def test_a_checkpoint_of_a_later_format_is_refused_by_name_and_stays(run, capfd):
    manifest = newest(run) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 3}))
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    message = f"checkpoint {newest(run)} has format 3, but this paragan reads only format 1; use the paragan version"
    assert resumed(run) == 2
    assert message in capfd.readouterr().err
    with pytest.raises(pg.CheckpointError, match="has format 3"):
        pg.load(run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before
    shutil.rmtree(newest(run))  # the other cure that the message names
    assert resumed(run) == 0


def test_arbitrary_record_does_not_prevent_resume(run, capfd):
    strange = [
        {"kind": "telemetry", "step": 1, "kimg": "soon", "g/top_singular_value": 1},
        {
            "kind": "telemetry",
            "step": 1,
            "kimg": HUGE,
            "gradient_norm_ratio": HUGE,
            "d/saturation": [1],
            "diversity": HUGE,
        },
        {"kind": "score", "step": 2, "kimg": 1, "fd[judge]": -HUGE, "coverage": "x"},
        {"kind": "score", "step": HUGE, "kimg": None, "fd[judge]": 1},
        {"kind": "advice", "step": 2, "name": ["not", "a", "name"]},
    ]
    with open(run / "metrics.jsonl", "a") as record:
        record.writelines(f"{json.dumps(line)}\n" for line in strange * 3)
    assert resumed(run) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    "word", ["seed=0x" + "f" * 4000, "seed=" + "9" * 4000, "seed=0o" + "7" * 5000, "model=" + "a" * 300]
)
def test_an_endless_value_is_refused_in_one_line(word, capfd):
    assert main(["config", "digits", word]) == 2
    assert "Traceback" not in (message := capfd.readouterr().err) and len(message) < 1500
    key, _, value = word.partition("=")
    with pytest.raises(ConfigError):
        parse_recipe(
            f"data: digits\nmodel: dcgan\nloss: hinge\n{key}: {value}\n".replace(
                "model: dcgan\n", "" if key == "model" else "model: dcgan\n"
            ),
            "x",
        )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800])
def test_class_names_that_are_no_text_are_refused(tmp_path, code, order):
    names = np.array([ord("a"), code], f"{order}u4").view(f"{order}U1")
    np.savez(tmp_path / "a.npz", images=np.zeros((5, 8, 8), np.uint8), labels=[0, 1, 0, 1, 0], class_names=names)
    with pytest.raises(DataError, match="class_names contains numbers that are not Unicode characters"):
        npz.source(npz.Options(path=str(tmp_path / "a.npz")), "train")
