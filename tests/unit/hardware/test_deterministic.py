"""`train.deterministic`: the flag of torch is set for the run alone; a missing kernel ends it in one line."""

import json
import os

import pytest
import torch

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.score import Score
from paragan.game.player import Player
from paragan.hardware.deterministic import deterministic_kernels, report_missing_kernels
from paragan.runs.evaluate import evaluate_run
from paragan.runs.score_checkpoints import _Scorer
from tests import tiny_run

SHORT = [
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "train.kimg=0.016"),
    *("evaluation.features=null", "every.sample_kimg=0"),
]


@pytest.fixture(autouse=True)
def _flag_is_restored(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # restored after the test, as a missing one is not
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert not torch.are_deterministic_algorithms_enabled()
    yield
    left = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    assert not left


@pytest.fixture
def flags(monkeypatch):
    """The flag at each update."""
    seen = []
    update = Player.update

    def noted(self, turn, against):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return update(self, turn, against)

    monkeypatch.setattr(Player, "update", noted)
    return seen


@pytest.mark.parametrize("enabled", [True, False])
def test_updates_of_a_run_use_deterministic_kernels_if_enabled(tmp_path, flags, enabled):
    words = [*SHORT, f"train.deterministic={str(enabled).lower()}"]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "run")]) == 0
    assert flags and set(flags) == {enabled}
    assert (os.environ.get("CUBLAS_WORKSPACE_CONFIG") == ":4096:8") is enabled


@pytest.mark.parametrize("enabled", [True, False])
def test_background_scores_and_eval_use_deterministic_kernels_if_enabled(tmp_path, monkeypatch, enabled):
    tiny_run.train(tmp_path, f"train.deterministic={str(enabled).lower()}")
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("features: null", "features: judge"))
    seen = []

    def noted(self, prior=None):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return Score(metrics={}, num_images=16, protocol={})

    monkeypatch.setattr(TrainingLoop, "compute_score", noted)
    checkpoint = str(tiny_run.newest(tmp_path))
    assert "score" in _Scorer(tmp_path, 1).reply_to({"checkpoint": checkpoint})
    evaluate_run(tmp_path)
    assert seen == [enabled, enabled]


def test_setting_may_change_on_a_resume(tmp_path, flags):
    run = ["train", "digits", *SHORT, "--out", str(tmp_path / "run")]
    assert main(run) == 0
    assert main([*run, "train.kimg=0.032", "train.deterministic=true"]) == 0
    assert set(flags) == {True, False}


def test_operation_without_a_deterministic_kernel_ends_the_run_in_one_line(tmp_path, monkeypatch, capfd):
    def overwriting(self, turn, against):
        torch.zeros(2).put_(torch.tensor([0]), torch.tensor([1.0]))

    monkeypatch.setattr(Player, "update", overwriting)
    folder = tmp_path / "run"
    assert main(["train", "digits", *SHORT, "train.deterministic=true", "--out", str(folder)]) == 2
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert "torch has no deterministic kernel for put_" in line
    assert "set train.deterministic=false" in line
    assert json.loads((folder / "exit.json").read_text())["code"] == 2


def test_other_errors_and_a_users_own_mode_are_unchanged():
    with pytest.raises(RuntimeError, match=r"^another$"), report_missing_kernels():
        raise RuntimeError("another")
    torch.set_deterministic_debug_mode("warn")
    try:
        with pytest.raises(ConfigError), deterministic_kernels(True):
            torch.zeros(2).put_(torch.tensor([0]), torch.tensor([1.0]))
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.set_deterministic_debug_mode("default")
