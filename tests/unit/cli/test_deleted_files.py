"""Files of a run that somebody deletes while it trains: written again, or an end in one line; never silence."""

import errno
import json
import os
import shutil

import pytest
import torch

import paragan as pg
from paragan.checkpoint.writer import CheckpointWriter
from paragan.cli.main import main
from paragan.core.errors import CheckpointError
from paragan.core.layout import Pieces
from paragan.engine.training_loop import TrainingLoop
from tests.tiny_run import SMALL, TINY

WORDS = ("train", "digits", *TINY, *SMALL, "train.kimg=0.128", "every.save_kimg=0.032", "every.log_steps=1")


@pytest.fixture
def deleting(monkeypatch, tmp_path):
    """Trains into a folder in which names are deleted after step 3; returns the folder and the exit code."""

    def train(delete):
        folder = tmp_path / "run"
        run = TrainingLoop.run

        def with_deletion(self, *arguments):
            for event in run(self, *arguments):
                yield event
                if event.kind == "step" and self.clock.step == 3:
                    delete(folder)

        monkeypatch.setattr(TrainingLoop, "run", with_deletion)
        code = main([*WORDS, "--out", str(folder)])
        monkeypatch.setattr(TrainingLoop, "run", run)
        return folder, code

    return train


def test_a_deleted_record_is_written_again_with_its_lines(deleting):
    folder, code = deleting(lambda folder: (folder / "metrics.jsonl").unlink())
    assert (code, [line["step"] for line in pg.Run(folder).history]) == (0, list(range(1, 9)))
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["kind"] == "end"


def test_a_record_that_is_emptied_between_two_saves_is_a_warning_and_continues(deleting, capsys):
    folder, code = deleting(lambda folder: os.truncate(folder / "metrics.jsonl", 0))
    assert code == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "bytes of the record are gone" in line]
    assert len(warnings) == 1 and warnings[0].startswith("warning: ")
    assert b"\0" not in (folder / "metrics.jsonl").read_bytes()
    assert [line["step"] for line in pg.Run(folder).history] == list(range(4, 9))


def test_a_deleted_config_is_written_again(deleting, capsys):
    folder, code = deleting(lambda folder: (folder / "config.yaml").unlink())
    assert code == 0
    assert main(["sample", str(folder), "--num", "2"]) == 0


@pytest.mark.parametrize("how", ["lock", "folder", "replaced", "moved"])
def test_a_run_whose_lock_is_gone_ends_in_one_line_and_resumes(deleting, capsys, how):
    def delete(folder):
        if how == "folder":
            shutil.rmtree(folder)
            return
        if how == "moved":
            folder.rename(folder.with_name("moved"))
            return
        (folder / "run.lock").unlink()
        if how == "replaced":
            (folder / "run.lock").write_text("1")

    folder, code = deleting(delete)
    assert code == 2
    error = capsys.readouterr().err.splitlines()
    assert str(folder) in error[-1] and "moved or deleted" in error[-1]
    assert main([*WORDS, "--out", str(folder)]) == 0
    assert "resuming at step 4" in capsys.readouterr().out
    assert main(["sample", str(folder), "--num", "2"]) == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_checkpoint_that_cannot_be_written_names_the_permission_or_the_space(tmp_path, monkeypatch, number):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("paragan.checkpoint.writer.save_file", refuse)
    writer = CheckpointWriter(folder=tmp_path / "checkpoints")
    with pytest.raises(CheckpointError) as caught:
        writer.save(2, {"g": Pieces({"net/w": torch.zeros(1)})}, {"value": 7})
    assert "permit writing" in str(caught.value) and not writer.paths()


@pytest.mark.parametrize("name", ["checkpoints", "samples", "report.html"])
def test_other_files_that_are_deleted_cost_nothing_but_themselves(deleting, capsys, name):
    def delete(folder):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)

    folder, code = deleting(delete)
    assert (code, [line["step"] for line in pg.Run(folder).history]) == (0, list(range(1, 9)))
    assert main(["sample", str(folder), "--num", "2"]) == 0
    assert main([*WORDS, "train.kimg=0.16", "--out", str(folder)]) == 0
    assert "resuming at step 8" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["run", "run/checkpoints"])
def test_a_folder_that_is_removed_during_a_save_is_not_called_a_full_disk(tmp_path, monkeypatch, name):
    begin = CheckpointWriter._begin

    def begin_and_lose(self, temporary):
        begin(self, temporary)
        shutil.rmtree(tmp_path / name)

    monkeypatch.setattr(CheckpointWriter, "_begin", begin_and_lose)
    with pytest.raises(CheckpointError) as caught:
        CheckpointWriter(folder=tmp_path / "run" / "checkpoints").save(2, {}, {"value": 7})
    message = str(caught.value)
    assert "the folder was removed or moved while it was written" in message
    assert "disk space" not in message and ".tmp" not in message and "shared" not in message
