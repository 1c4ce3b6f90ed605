"""The checkpoint with the best score is kept whole, whatever happens to the others."""

import errno
import json
import math
import os
from pathlib import Path

import pytest

import paragan as pg
from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import read_checkpoint
from paragan.cli.main import main
from paragan.core.errors import CheckpointError
from paragan.core.metric import Direction
from paragan.evaluation.score import Score
from tests import tiny_run

FAILED = {"fd[judge]": Direction.LOWER, "coverage": Direction.HIGHER}  # the deciding metric has no value


def score(value: float, metric: str = "fd[judge]", num_images: int = 100, **protocol) -> Score:
    return Score(metrics={metric: value, "coverage": 0.5}, num_images=num_images, protocol={"by": ("a", 1), **protocol})


def checkpoint(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("manifest.json", "g.safetensors"):
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def kept(tmp_path):
    best = Best(tmp_path / "best")
    best.update(checkpoint(tmp_path / "step-3", "three"), 3, 300, score(2.0))
    return best


@pytest.mark.parametrize(
    ("other", "better"),
    [
        (score(1.9), True),
        (score(2.0), False),
        (score(math.nan), False),
        (score(9.0, metric="l1"), True),  # does not compare
        (score(9.0, num_images=50), True),
        (score(9.0, judge="another"), True),
        (score(9.0, fd={"k": 3}), True),
        (score(9.0, coverage={"k": 3}, real={"num_images": 5}), False),  # of another metric
        (score(1.9, coverage={"k": 3}), True),
        (score(math.inf, metric="l1"), False),
        (Score(metrics={"coverage": 0.9}, num_images=100, protocol={"by": ("a", 1)}, directions=FAILED), False),
    ],
)
def test_best_lower_score_of_same_protocol_wins(kept, other, better):
    assert kept.is_beaten_by(other) is better


def test_the_next_metric_decides_where_the_first_never_has_a_value(tmp_path):
    best = Best(tmp_path / "best")
    directions = {"own": Direction.LOWER, "fd": Direction.LOWER, "coverage": Direction.HIGHER}

    def score_of(**values):
        return Score(metrics=values, num_images=100, protocol={}, directions=directions)

    assert best.is_beaten_by(score_of(fd=2.0, coverage=0.5))
    best.update(checkpoint(tmp_path / "step-1", "one"), 1, 10, score_of(fd=2.0, coverage=0.5))
    assert not best.is_beaten_by(score_of(fd=2.5, coverage=0.9))
    assert not best.is_beaten_by(score_of(coverage=0.9))  # fd fails now and then, and still decides
    assert best.is_beaten_by(score_of(fd=1.5))
    assert best.is_beaten_by(score_of(own=9.0))  # the first works again, and decides from now on
    assert not best.is_beaten_by(score_of())


def test_best_first_score_wins(tmp_path):
    assert Best(tmp_path / "best").is_beaten_by(score(1e9))
    with pytest.raises(CheckpointError, match="the run was never scored; leave --best out"):
        Best(tmp_path / "best").path()


def test_best_survives_pruning_and_is_replaced_atomically(kept, tmp_path):
    four = checkpoint(tmp_path / "step-4", "four")
    for name in ("manifest.json", "g.safetensors"):
        (tmp_path / "step-3" / name).unlink()
    assert (kept.path() / "g.safetensors").read_text() == "three"
    kept.update(four, 4, 400, score(1.5))
    assert (kept.path() / "g.safetensors").samefile(four / "g.safetensors")  # no copy
    told = json.loads((kept.path() / "score.json").read_text())
    assert (told["step"], told["images"], told["metric"], told["value"]) == (4, 400, "fd[judge]", 1.5)
    assert (told["fd[judge]"], told["num_images"]) == (1.5, 100)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", "step-3", "step-4"]


def test_best_without_hard_links_is_copied(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
    kept.update(checkpoint(tmp_path / "step-4", "four"), 4, 400, score(1.5))
    assert (kept.path() / "g.safetensors").read_text() == "four"


@pytest.mark.parametrize(("method", "left"), [("unlink", "three"), ("rename", "four")])
def test_best_killed_replacement_leaves_a_complete_checkpoint(kept, tmp_path, monkeypatch, method, left):
    real = getattr(Path, method)

    def killed(self, *arguments, **options):
        if self.name in ("manifest.json", ".best.new"):
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, method, killed)
    with pytest.raises(KeyboardInterrupt):
        kept.update(checkpoint(tmp_path / "step-4", "four"), 4, 400, score(1.5))
    monkeypatch.undo()
    assert (kept.path() / "g.safetensors").read_text() == left
    assert kept.is_beaten_by(score(1.7)) is (left == "three")
    five = checkpoint(tmp_path / "step-5", "five")
    monkeypatch.setattr(
        "paragan.checkpoint.writer.link_or_copy", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
    )
    with pytest.raises(CheckpointError):
        kept.update(five, 5, 500, score(1.0))
    monkeypatch.undo()
    assert (kept.path() / "g.safetensors").read_text() == left
    kept.update(five, 5, 500, score(1.0))
    assert (tmp_path / "best" / "g.safetensors").read_text() == "five"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Scores 4, 2, 3 and at the end 5: the second step is the best, of which no checkpoint was due."""
    folder = tmp_path_factory.mktemp("best") / "run"
    values = iter((0.5, 4.0, 2.0, 3.0, 5.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paragan.build.game_trainer.scorer", lambda *_, **__: lambda player, prior: score(next(values)))
        words = ("every.score_kimg=0.016", "every.save_kimg=0.064", "every.keep=1", "evaluation.features=judge")
        tiny_run.train(folder, *words)
    return folder


def test_run_best_checkpoint_is_not_pruned(run):
    assert "step-000000002" not in [path.name for path in (run / "checkpoints").iterdir()]
    assert read_checkpoint(run / "best").step == 2  # the untrained generator's 0.5 does not count
    assert pg.load(run).info.step == 4
    assert pg.load(run, best=True).info.step == 2


def test_cli_best_option_reads_best_checkpoint(quick_judge, run, capsys, tmp_path):
    assert main(["sample", str(run), "--best", "--num", "4"]) == 0
    assert "step-2" in capsys.readouterr().out
    assert main(["export", str(run), "--best", "--out", str(tmp_path)]) == 0
    assert "at step 2." in (tmp_path / "README.md").read_text()
    assert pg.load(tmp_path).info.step == 2
    assert main(["eval", str(run), "--best", "--num-images", "10"]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("step 2 ")
    assert main(["sample", str(tmp_path / "generator.safetensors"), "--best"]) == 2
    assert "best is for run folders" in capsys.readouterr().err


def test_best_finish_replacement_after_kill_between_renames(tmp_path):
    best = Best(tmp_path / "best")
    for folder in (best.folder, tmp_path / ".best.new"):
        folder.mkdir()
        (folder / "state.json").write_text(folder.name)
    (folder / "manifest.json").write_text(folder.name)
    assert best.path() == folder
    best.finish_replacement()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "manifest.json").read_text() == ".best.new"
