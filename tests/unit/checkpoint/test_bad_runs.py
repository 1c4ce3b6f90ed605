"""What users get wrong about a run: one line, exit 2, nothing written, nothing lost."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from paragan.checkpoint import writer
from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.engine.training_loop import TrainingLoop
from paragan.writers import jsonl
from tests.tiny_run import train

TINY = [
    "data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.kimg=0.064", "evaluation.features=null",
    "every.save_kimg=0.032", "every.sample_kimg=0",
]  # fmt: skip


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """Runs a command that must fail: exit 2, one line on stderr, the folder as before. Returns the line."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str, changes: bool = False) -> str:
        before = tree(tmp_path)
        capfd.readouterr()
        assert main(list(argv)) == 2
        lines = [line for line in capfd.readouterr().err.strip().splitlines() if not line.startswith("warning:")]
        assert len(lines) == 1, lines
        assert "Traceback" not in lines[0]
        if not changes:
            assert tree(tmp_path) == before
        return lines[0]

    return run


@pytest.fixture
def trained(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *TINY, "--out", "run"]) == 0
    return tmp_path / "run"


def test_a_checkpoint_of_another_model(trained, refused):
    line = refused("train", "digits", *TINY, "model.width=8", "--out", "run")
    assert "model.width" in line
    assert "--fresh" in line
    (trained / "config.yaml").write_text((trained / "config.yaml").read_text().replace("width: 4", "width: 8"))
    line = refused("train", "digits", *TINY, "model.width=8", "--out", "run")
    assert "checkpoint of another model: g: blocks.0.linear" in line


def test_a_disk_that_fills_while_saving(trained, refused, monkeypatch):
    def full(tensors, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = tree(trained / "checkpoints")
    monkeypatch.setattr(writer, "save_file", full)
    line = refused("train", "digits", *TINY, "train.kimg=0.128", "--out", "run", changes=True)
    assert "no space left on the device; earlier checkpoints are intact: free space or permit writing" in line
    assert tree(trained / "checkpoints") == kept
    monkeypatch.undo()
    monkeypatch.chdir(trained.parent)
    assert main(["train", "digits", *TINY, "train.kimg=0.128", "--out", "run"]) == 0


def test_fresh_keeps_the_former_run(trained, capfd):
    before = tree(trained)
    assert main(["train", "digits", *TINY, "model.width=8", "--out", "run", "--fresh"]) == 0
    assert tree(trained.parent / "run.old-1") == before
    assert "run.old-1" in capfd.readouterr().out


def test_what_never_began_is_in_nobodys_way(refused, capfd, tmp_path):
    """A run that failed in its first step has nothing to go on from; it is kept all the same."""
    words = ("train", "digits", *TINY, "augment=null", "--out", "run")
    assert "path_length needs" in refused(*words, "penalties=[path_length]", changes=True)
    before = tree(tmp_path / "run")
    assert main([*words, "penalties=[]"]) == 0
    assert tree(tmp_path / "run.old-1") == before
    assert "the former run, which ended before its first step, was moved to" in capfd.readouterr().out
    assert "penalties" in refused(*words, "penalties=[path_length]")  # this one has begun


def test_a_diverged_run_is_not_saved_over_a_good_one(trained, refused):
    kept = tree(trained / "checkpoints")
    config = (trained / "config.yaml").read_text()
    (trained / "config.yaml").write_text(config.replace("lr: 0.001", "lr: 1.0e+300"))
    again = ("train", str(trained / "config.yaml"), "train.kimg=0.128", "--out", "run")
    line = refused(*again, changes=True)
    assert "no longer finite: the run has diverged (earlier checkpoints are intact)" in line
    assert tree(trained / "checkpoints") == kept


def test_a_checkpoint_that_lacks_something(trained, refused):
    newest = max((trained / "checkpoints").iterdir())
    state = newest / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "values": {}}))
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest["files"]["state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
    (newest / "manifest.json").write_text(json.dumps(manifest))
    assert "'players' is missing" in refused("sample", "run")


def test_fresh_moves_only_runs(refused, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("all of it")
    assert main(["train", "digits", *TINY, "--out", "precious", "--fresh"]) == 0
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "all of it"
    assert not (tmp_path / "precious.old-1").exists()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "sub\r/a"])
def test_run_folder_with_a_control_character_is_refused_before_it_is_made(refused, tmp_path, name):
    line = refused("train", "digits", *TINY, "--out", name)
    assert "--out" in line and "control character" in line and not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EBUSY])
def test_fresh_where_the_folder_above_cannot_be_written_is_one_line(trained, refused, monkeypatch, number):
    def refuse(path, target):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "rename", refuse)
    line = refused("train", "digits", *TINY, "--out", "run", "--fresh")
    assert line.startswith("--fresh cannot rename run folder run") and os.strerror(number) in line
    assert (trained / "config.yaml").exists()


def test_too_much_memory_is_one_line(refused):
    assert "out of memory" in refused("train", "digits", *TINY, "model.width=1000000000")
    assert "train.batch" in refused("train", "digits", *TINY, "train.batch=1000000000000")


def test_two_writers_of_one_name(refused):
    line = refused("train", "digits", *TINY, "writers=[jsonl, report, report]")
    assert "writers has report twice; name each writer once" in line


def test_eval_scores_where_nothing_may_be_written(quick_judge, tmp_path, capfd):
    train(tmp_path / "run", "evaluation.features=judge", "evaluation.num_images=100")
    shutil.rmtree(tmp_path / "run" / "judge")
    (tmp_path / "run" / "judge").touch()  # no folder can be made here, whoever asks
    before = tree(tmp_path)
    capfd.readouterr()
    assert main(["eval", str(tmp_path / "run")]) == 0
    assert "fd " in capfd.readouterr().out
    assert tree(tmp_path) == before


@pytest.mark.parametrize("line", ["[" * 100_000, f'{{"step": 1{"0" * 400}}}', "[1]", '{"step": null}'])
def test_invalid_line_of_the_record_is_dropped(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + line + "\n")
    jsonl.Writer(None, tmp_path, step=2).close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'


@pytest.mark.parametrize(
    ("raised", "code", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left", "x"), 2, "x: No space left; free space, and run the command again"),
        (RuntimeError("out of memory"), 2, "out of memory: out of memory; lower train.batch or the model's width"),
        (KeyboardInterrupt(), 130, "KeyboardInterrupt"),
        (SystemExit(3), 3, "3"),
        (DataError("a\x1b[2J"), 2, "a?[2J"),
        (ZeroDivisionError("ours"), 1, "ours"),
    ],
)
def test_exit_json_has_the_exit_code_of_the_process(trained, monkeypatch, raised, code, reason):
    def fails(self, num_steps=None):
        raise raised

    monkeypatch.setattr(TrainingLoop, "run", fails)
    words = ["train", "digits", *TINY, "train.kimg=0.128", "--out", "run"]
    if isinstance(raised, (SystemExit, ZeroDivisionError)):  # Python ends the process by itself
        with pytest.raises(type(raised)):
            main(words)
    else:
        assert main(words) == code
    assert json.loads((trained / "exit.json").read_text()) == {"code": code, "step": 4, "reason": reason}


def test_a_run_that_is_done_says_so_truly(trained, capfd):
    capfd.readouterr()
    assert main(["train", "digits", *TINY, "--out", "run"]) == 0
    assert "train run train.kimg=0.128" in capfd.readouterr().out
    before = (trained / "config.yaml").read_text()
    assert main(["train", "digits", *TINY, "train.kimg=0.016", "--out", "run"]) == 2
    assert "holds 0.064 kimg of training, more than train.kimg=0.016" in capfd.readouterr().err
    assert (trained / "config.yaml").read_text() == before
