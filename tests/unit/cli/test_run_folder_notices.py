"""What a session finds in its folder that the user may not know: files of theirs, edits, missing history."""

import shutil
from pathlib import Path

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from tests.tiny_run import SMALL, TINY

TRAIN = ["train", "digits", *TINY, *SMALL, "train.threads=1", "--out", "run"]


def warnings_of(capsys) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("names", [["thesis.tex"], ["a folder/notes.md"], [f"{n}.txt" for n in range(9)]])
def test_new_run_in_a_folder_with_files_of_the_user_says_so_and_leaves_them(here, names, capsys):
    for name in names:
        Path("run", name).parent.mkdir(parents=True, exist_ok=True)
        Path("run", name).write_text("mine")
    assert main(TRAIN) == 0
    (line,) = warnings_of(capsys)
    assert sorted(names)[0].partition("/")[0] in line and "--fresh" in line
    assert line.endswith("with the run") and len(line) < 200
    assert all(Path("run", name).read_text() == "mine" for name in names)
    assert main([*TRAIN, "train.kimg=0.096"]) == 0
    assert warnings_of(capsys) == []


def test_new_run_and_resume_in_a_folder_of_its_own_say_nothing(here, capsys):
    Path("run").mkdir()
    for kimg in ("0.064", "0.096"):
        assert main([*TRAIN, f"train.kimg={kimg}"]) == 0
    assert main([*TRAIN, "--fresh"]) == 0
    assert warnings_of(capsys) == []


@pytest.mark.parametrize(
    "edit", [("lr: 0.001", "lr: 0.1"), ("kimg: 0.064", "kimg: 0.08"), ("format: 1", "# mine\nformat: 1")]
)
def test_resume_with_an_edited_config_says_so_once(here, edit, capsys):
    assert main(TRAIN) == 0
    path = Path("run/config.yaml")
    assert edit[0] in path.read_text()
    path.write_text(path.read_text().replace(*edit))
    for expected in (1, 0):
        capsys.readouterr()
        assert main(["train", "run", f"train.kimg={0.128 - expected * 0.032}"]) == 0
        lines = warnings_of(capsys)
        assert len(lines) == expected and all("config.yaml was edited" in line for line in lines)


def test_resume_without_the_record_or_without_checkpoints_says_what_is_missing(here, capsys):
    assert main(TRAIN) == 0
    Path("run/metrics.jsonl").unlink()
    capsys.readouterr()
    assert main([*TRAIN, "train.kimg=0.096"]) == 0
    assert ["metrics.jsonl is missing" in line and "step 4" in line for line in warnings_of(capsys)] == [True]
    shutil.rmtree("run/checkpoints")
    assert main([*TRAIN, "train.kimg=0.096"]) == 0
    assert ["no later checkpoint: training begins again at step 0" in line for line in warnings_of(capsys)] == [True]


def test_run_of_a_folder_that_does_not_exist_is_refused(here):
    with pytest.raises(pg.CheckpointError, match="does not exist"):
        pg.Run("runs/nope")


@pytest.mark.parametrize("seed", ["a", 1.5, [1]])
def test_sample_seed_that_is_no_integer_is_refused_and_images_show_in_a_notebook(here, seed):
    assert main(TRAIN) == 0
    run = pg.Run("run")
    with pytest.raises(pg.ConfigError, match="seed must be an integer"):
        run.sample(2, seed=seed)
    assert run.sample(3)._repr_png_().startswith(b"\x89PNG")
    assert torch.equal(run.sample(2, seed=1).tensor, run.sample(2, seed=1).tensor)
