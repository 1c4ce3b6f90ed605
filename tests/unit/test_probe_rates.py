"""Trials of the learning-rate probe of a plan: what they train, where, and how they are scored."""

from __future__ import annotations

import json
import tempfile

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.metric import Direction
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.score import Score
from paragan.features import _classifier
from paragan.runs import probe_rates
from paragan.runs.plan_settings import with_settings
from paragan.scaling.successive_halving import TrialScore
from tests.probed_plans import GROUPS, WORDS, fd, planned, probed, record_trials, source_of

ASYNCHRONOUS = {
    "scheme": {"name": "asynchronous", "ranks": {"g": 1, "d": 1}},
    "g.strategy": {"name": "local_sgd", "every": 2},
    "d.reduce": "bf16",
}


@pytest.fixture
def few_judge_steps(monkeypatch):
    monkeypatch.setattr(_classifier, "STEPS", 10)


@pytest.fixture
def trained(monkeypatch):
    return record_trials(monkeypatch)


# scores of trials


def test_score_is_read_from_the_values_of_its_event():
    directions = {"fd": Direction.LOWER, "coverage": Direction.HIGHER}
    score = Score({"fd": 2.0, "coverage": 0.5}, 10, {"mode": "eval"}, {"fd": 1.0}, directions, {"fd": (1.0, 3.0)})
    assert Score.from_values(json.loads(json.dumps({**score.values, "evaluation_mode": "inline"}))) == score


def test_trial_has_the_score_that_ranks_checkpoints():
    neither = {"spread": Direction.NEITHER, "coverage": Direction.HIGHER}
    score = Score({"spread": 1.0, "coverage": 0.5, "fd": 2.0}, 10, {}, {}, neither, {"coverage": (0.4, 0.6)})
    assert probe_rates._trial_score(score) == TrialScore("coverage", 0.5, Direction.HIGHER, (0.4, 0.6))


@pytest.mark.parametrize(
    ("value", "ends", "found"),
    [
        (float("nan"), (1.0, 2.0), None),
        (float("inf"), (1.0, 2.0), None),
        (1.0, (float("nan"), float("nan")), TrialScore("fd", 1.0)),
    ],
)
def test_score_that_is_not_finite_counts_as_diverged(value, ends, found):
    assert probe_rates._trial_score(Score({"fd": value}, 10, {}, intervals={"fd": ends})) == found


def test_score_that_ranks_no_checkpoints_is_refused():
    with pytest.raises(ConfigError, match=r"no metric of evaluation\.metrics ranks them; add one such as fd"):
        probe_rates._trial_score(Score({"spread": 1.0}, 10, {}, directions={"spread": Direction.NEITHER}))


# trials of the tiny digits


@pytest.mark.usefixtures("few_judge_steps")
def test_probe_equals_runs_of_one_piece_and_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = source_of(GROUPS, "g.ema.half_life_kimg=0.05", "evaluation.resamples=20")
    plan = planned(source)
    scores = []
    train = probe_rates._train
    monkeypatch.setattr(probe_rates, "_train", lambda *given: scores.append(train(*given)) or scores[-1])
    found, said, reported = probed(source, plan)
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")] == []
    assert len([line for line in said if line.startswith("judge     training")]) == 1

    trials = [line for line in reported if ": fd[judge] " in line]
    assert [line.split(":")[0] for line in trials[:3]] == [f"probe     lr x {factor}" for factor in ("0.5", "1", "2")]
    assert all(line.endswith(" after 0.125 kimg") for line in trials[:3])
    assert len(trials) == 5 and all(line.endswith(" after 0.25 kimg") for line in trials[3:])
    factor = float(trials[4].split()[3].rstrip(":"))
    assert scores[4] == one_piece(source, plan, factor, tmp_path / "run")
    assert trials[4] == f"probe     lr x {factor:g}: fd[judge] {scores[4]} after 0.25 kimg"
    assert found.decisions[-3].reason.startswith("probe: x ")


def one_piece(source, plan, factor, folder):
    """The score of a trial of the last length, trained without a resume."""
    config = with_settings(source.config, plan.settings)
    words = {
        "train.kimg": 0.25,
        "g.optimizer.lr": config.g.optimizer.lr * factor,
        "d.optimizer.lr": config.d.optimizer.lr * factor,
        "d.optimizer.groups": [{"match": "*.bias", "lr": config.d.optimizer.groups[0]["lr"] * factor}],
        "every": {"sample_kimg": 0, "save_kimg": 0, "score_kimg": 0},
    }
    loop = build.trainer(with_settings(config, words), folder, print, lambda: False)
    score = next(event.values for event in loop.run() if event.kind == "score")
    return TrialScore("fd[judge]", score["fd[judge]"], Direction.LOWER, tuple(score["intervals"]["fd[judge]"]))


def test_trial_whose_weights_are_not_finite_has_diverged(tmp_path):
    config = read_recipe("digits", [*WORDS, "g.optimizer.lr=1e300", "train.kimg=0.032"])
    assert probe_rates._train(config, tmp_path, "probe", print) is None


def test_trial_whose_images_are_not_finite_has_diverged(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingLoop, "compute_score", lambda loop: require_finite(torch.tensor([float("nan")])))
    config = read_recipe("digits", [*WORDS, "train.kimg=0.032"])
    assert probe_rates._train(config, tmp_path, "probe", print) is None


def test_other_errors_of_a_trial_are_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingLoop, "compute_score", lambda loop: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        probe_rates._train(read_recipe("digits", [*WORDS, "train.kimg=0.032"]), tmp_path, "probe", print)


def test_trial_starts_from_the_weights_of_init(tmp_path, monkeypatch):
    starts = []
    monkeypatch.setattr(probe_rates, "initialised", lambda config, *rest: starts.append(config.init.path))
    monkeypatch.setattr(TrainingLoop, "compute_score", lambda loop: Score({"fd": 1.0}, 10, {}))
    for kimg in (0.016, 0.032):
        config = read_recipe("digits", [*WORDS, f"init={tmp_path}", f"train.kimg={kimg}"])
        assert probe_rates._train(config, tmp_path, "probe", print) == TrialScore("fd", 1.0)
    assert starts == [str(tmp_path)]  # not at the resume


# configs of trials


def test_trials_have_the_planned_batch_and_scaled_rates(trained):
    source = source_of(GROUPS)
    found, _, reported = probed(source, planned(source))
    assert [one.g.optimizer.lr for one in trained] == pytest.approx([0.001, 0.002, 0.004, 0.002, 0.004])
    assert [one.d.optimizer.lr for one in trained] == pytest.approx([0.001, 0.002, 0.004, 0.002, 0.004])
    biases = [one.d.optimizer.groups[0]["lr"] for one in trained]
    assert biases == pytest.approx([1e-4, 2e-4, 4e-4, 2e-4, 4e-4])
    assert [one.train.kimg for one in trained] == [0.125, 0.125, 0.125, 0.25, 0.25]
    assert {one.train.batch for one in trained} == {64}
    assert {(one.g.schedule.warmup, one.every.score_kimg, one.evaluation.mode) for one in trained} == {(2, 0, "inline")}
    assert found.settings["g.optimizer.lr"] == pytest.approx(0.004)
    first = "learning rates x 0.5, 1, 2: 0.125 kimg each, the better two 0.25 kimg"
    assert reported[0] == f"probe     {first}, in one process with batches of 64"
    assert reported[-1] == "probe     lr x 2: fd 250 after 0.25 kimg"


def test_probe_leaves_torchs_generator_unchanged(monkeypatch):
    monkeypatch.setattr(probe_rates, "_train", lambda *given: fd(float(torch.rand(()))))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    source = source_of()
    probed(source, planned(source))
    assert torch.equal(before, torch.get_rng_state())


def test_asynchronous_plan_is_probed_synchronously_and_the_output_says_so(trained):
    source = source_of()
    found, _, reported = probed(source, planned(source, ASYNCHRONOUS))
    assert {(one.scheme.name, one.g.strategy, one.d.reduce, one.devices) for one in trained} == {
        ("synchronous", None, "fp32", None)
    }
    names = "scheme.name=asynchronous, g.strategy.name=local_sgd, d.reduce=bf16"
    assert reported[1] == f"probe     synchronous, without {names}"
    assert found.settings["scheme"] == ASYNCHRONOUS["scheme"]


def test_synchronous_plan_is_probed_in_its_order_of_turns(trained):
    source = source_of()
    _, _, reported = probed(source, planned(source, {"g.strategy": {"name": "zero1"}}))
    assert {one.scheme.name for one in trained} == {"shared_fakes"}
    assert not any("without" in line for line in reported)


def test_short_probe_within_the_warm_up_is_warned_of(trained):
    source = source_of("g.schedule.warmup=5", "d.updates_per_step=2")
    _, _, reported = probed(source, planned(source))
    text = "the first runs end within the warm-up of 0.64 kimg, at lower rates; pass a larger --probe-kimg"
    assert reported[1] == f"warning: {text}"
    source = source_of()
    assert not any(line.startswith("warning") for line in probed(source, planned(source), kimg=0.25)[2])


@pytest.mark.parametrize(("limit", "parts"), [(None, 1), (124e6, 1), (91e6, 2), (90e6, 4), (60e6, 64)])
def test_batch_is_split_where_it_does_not_fit_into_memory(trained, limit, parts):
    source = source_of()  # 60 MB, and 1 MB for each sample after the first
    probed(source, planned(source), memory_bytes=None if limit is None else int(limit))
    assert {(one.g.micro_batches, one.d.micro_batches) for one in trained} == {(parts, parts)}


def test_profile_of_micro_batches_counts_for_fewer_samples(trained):
    source = source_of("g.micro_batches=2", "d.micro_batches=2")
    probed(source, planned(source), memory_bytes=int(91e6))
    assert {one.g.micro_batches for one in trained} == {4}


def test_memory_that_no_sample_fits_into_is_refused(trained):
    source = source_of()
    with pytest.raises(ConfigError, match=r"one sample needs more than 0.05 GB; leave --probe-kimg out"):
        probed(source, planned(source), memory_bytes=int(5e7))
    assert not trained


@pytest.mark.parametrize(
    ("message", "kind"), [("not enough memory: you tried to allocate memory", ConfigError), ("a bug", RuntimeError)]
)
def test_memory_that_ends_in_a_trial_is_reported_in_one_line(monkeypatch, message, kind):
    def train(*arguments):
        raise RuntimeError(message)

    monkeypatch.setattr(probe_rates, "_train", train)
    source = source_of()
    with pytest.raises(kind) as raised:
        probed(source, planned(source))
    assert ("pass --memory GB with --choose for micro-batches" in str(raised.value)) == (kind is ConfigError)


def test_progress_of_a_long_trial_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(probe_rates, "_PERIOD_S", 0.0)
    monkeypatch.setattr(TrainingLoop, "compute_score", lambda loop: Score({"fd": 1.0}, 10, {}))
    said = []
    config = read_recipe("digits", [*WORDS, "train.kimg=0.032"])
    probe_rates._train(config, tmp_path, "probe     lr x 2", said.append)
    assert "probe     lr x 2: 0.0 of 0.032 kimg" in said
