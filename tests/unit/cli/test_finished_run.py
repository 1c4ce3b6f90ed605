"""`train` on a run that is finished: nothing is trained, scored or written again; a run folder resumes."""

import shutil
from pathlib import Path

import pytest

import paragan
from paragan.cli.main import main
from tests.unit.cli.mistaken import WORDS, trained


@pytest.fixture
def run(here, capsys) -> Path:
    shutil.copytree(trained(), here / "runs" / "digits")
    capsys.readouterr()
    return Path("runs/digits")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, which names the process."""
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "run.lock"}


FINISHED = "already finished at step 2: runs/digits; to train longer: paragan train runs/digits train.kimg=0.032\n"


@pytest.mark.parametrize("words", [["digits", *WORDS], ["runs/digits"], ["runs/digits/"], ["runs/digits/config.yaml"]])
def test_a_finished_run_repeated_says_so_and_writes_nothing(run, words, capsys):
    before = contents(run)
    assert main(["train", *words]) == 0
    assert capsys.readouterr().out == FINISHED
    assert contents(run) == before


def test_the_command_for_a_longer_run_trains_on(run, capsys):
    assert main(["train", "runs/digits", "train.kimg=0.032"]) == 0
    out = capsys.readouterr().out
    assert "resuming at step 2" in out
    assert "finished: step 4, 0.032 kimg" in out
    assert "score     off (evaluation.features=null)" in out
    assert "paragan train runs/digits train.kimg=0.064" in out


@pytest.mark.parametrize("words", [["every.keep=2"], ["evaluation.num_images=10"]])
def test_a_finished_run_with_another_setting_is_opened_again(run, words, capsys):
    assert main(["train", "runs/digits", *words]) == 0
    assert "resuming at step 2" in capsys.readouterr().out


def test_a_run_that_ended_before_its_final_score_is_opened_again(run, capsys):
    (run / "exit.json").unlink()
    assert main(["train", "runs/digits"]) == 0
    assert "resuming at step 2" in capsys.readouterr().out
    assert (run / "exit.json").exists()


def test_a_finished_run_without_its_checkpoints_is_trained_again(run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert main(["train", "runs/digits"]) == 0
    assert "starting: " in capsys.readouterr().out
    assert list((run / "checkpoints").iterdir())


def test_a_run_folder_named_like_a_recipe_is_called_by_its_path(here, capsys):
    shutil.copytree(trained(), here / "digits")
    capsys.readouterr()
    assert main(["train", "./digits"]) == 0
    assert "longer: paragan train ./digits train.kimg=0.032" in capsys.readouterr().out


def test_from_python_a_finished_run_is_returned_as_it_is(run, capsys):
    before = contents(run)
    found = paragan.train(str(run / "config.yaml"), out=run)
    assert capsys.readouterr().out == (
        "already finished at step 2: runs/digits; to train longer: the same program with train.kimg=0.032\n"
    )
    assert len(found.sample(2)) == 2
    assert contents(run) == before


@pytest.mark.parametrize(("batch", "is_warned"), [(1437, False), (1438, True)])
def test_a_batch_larger_than_the_data_set_is_warned_of(batch, is_warned, here, capsys):
    assert main(["train", "digits", *WORDS, f"train.batch={batch}", "train.kimg=1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    warning = f"warning: train.batch={batch} is larger than the data set (1,437 samples): each batch repeats samples"
    assert (warning in lines) == is_warned
