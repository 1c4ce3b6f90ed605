"""The learning-rate probe of `plan --choose` and `train --plan auto`: refusals, decisions, documents."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paragan.cli.main import main
from paragan.cli.plan import format_decisions
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.score import Score
from paragan.hardware import device
from paragan.runs import plan_run, planned_training
from paragan.runs.plan_settings import apply_plan, read_parallel_plan
from paragan.runs.probe_rates import refuse_probe
from paragan.scaling.parallel_plan import ParallelPlan
from tests.probed_plans import GROUPS, WORDS, planned, probed, record_trials, source_of


@pytest.fixture
def trained(monkeypatch):
    return record_trials(monkeypatch)


# the plan


def test_decisions_of_rule_and_warm_up_stay_and_the_probe_follows(trained):
    source = source_of(GROUPS)
    plan = planned(source)
    found, _, _ = probed(source, plan)
    assert found.decisions[: len(plan.decisions)] == plan.decisions
    added = found.decisions[len(plan.decisions) :]
    assert [one.key for one in added] == ["g.optimizer.lr", "d.optimizer.lr", "d.optimizer.groups"]
    reason = "probe: x 2; fd x 1: 500, x 2: 250 after 0.25 kimg; x 0.5: 1000, x 1: 500, x 2: 250 after 0.125 kimg"
    assert {one.reason for one in added} == {reason}
    assert added[2].value == [{"match": "*.bias", "lr": pytest.approx(4e-4)}]
    assert found.settings == {**plan.settings, **{one.key: one.value for one in added}}
    assert f"g.optimizer.lr: 0.004 ({reason})" in format_decisions(found)
    again = ParallelPlan.of(json.loads(json.dumps(found.to_dict())))
    assert again == replace(found, settings=again.settings) and dict(again.settings) == dict(found.settings)


def test_plan_that_scales_no_rates_is_probed_too(trained):
    source = source_of()
    found, _, _ = probed(source, planned(source, batch=16))
    assert [one.g.optimizer.lr for one in trained][:3] == pytest.approx([0.0005, 0.001, 0.002])
    assert found.settings["d.optimizer.lr"] == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("words", "kimg", "problem"),
    [
        (["evaluation.features=null"], 0.1, "evaluation.features=null switches them off; set evaluation.features"),
        ([], 0, "--probe-kimg must be more than 0, not 0"),
        ([], -1, "--probe-kimg must be more than 0, not -1"),
        ([], float("nan"), "--probe-kimg must be more than 0, not nan"),
        ([], 0.251, "0.251 is more than a quarter of train.kimg=1: its trials are 1.255 kimg in all, longer than"),
        ([], float("inf"), "pass 0.25 or less"),
    ],
)
def test_probe_that_cannot_be_made_is_refused_in_one_line(words, kimg, problem):
    with pytest.raises(ConfigError) as refused:
        refuse_probe(read_recipe("digits", [*WORDS, *words]), kimg)
    assert problem in str(refused.value) and "\n" not in str(refused.value)


def test_named_tensors_need_metrics_instead_of_features():
    refuse_probe(read_recipe("vocoder", []), 1)
    with pytest.raises(ConfigError, match=r"evaluation\.metrics=null switches them off"):
        refuse_probe(read_recipe("vocoder", ["evaluation.metrics=null"]), 1)


def test_quarter_of_the_run_is_allowed():
    refuse_probe(read_recipe("digits", WORDS), 0.25)


# the commands


@pytest.fixture
def no_measurement(monkeypatch):
    def measure(*arguments, **more):
        raise AssertionError("a refusal after a measurement")

    monkeypatch.setattr("paragan.runs.forecast_run.measure_profile", measure)
    monkeypatch.setattr(planned_training, "profiled", measure)


PLAN = ["plan", "digits", *WORDS]
TRAIN = ["train", "digits", *WORDS]
CHOOSE = ["--workers", "4", "--choose"]


@pytest.mark.usefixtures("no_measurement")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([*PLAN, "--workers", "4", "--probe-kimg", "0.1"], "chooses learning rates of a plan; pass --choose"),
        ([*PLAN, "--probe-kimg", "0.1"], "pass --choose, too"),
        ([*PLAN, *CHOOSE, "--probe-kimg", "-1"], "--probe-kimg must be more than 0, not -1"),
        ([*PLAN, *CHOOSE, "--probe-kimg", "1"], "pass 0.25 or less"),
        ([*PLAN, *CHOOSE, "--probe-kimg", "0.1", "evaluation.features=null"], "evaluation.features=null switches"),
        ([*PLAN, *CHOOSE, "--probe-kimg", "0.1", "--shape", "1x8x8"], "--shape plans without it; leave one"),
        ([*TRAIN, "--probe-kimg", "0.1"], "--probe-kimg chooses learning rates of a plan; pass --plan auto, too"),
        ([*TRAIN, "--plan", "plan.json", "--probe-kimg", "0.1"], "pass --plan auto, too"),
        ([*TRAIN, "--plan", "auto", "--probe-kimg", "1"], "pass 0.25 or less"),
    ],
)  # fmt: skip
def test_command_refuses_a_probe_before_it_measures(tmp_path, monkeypatch, capsys, words, problem):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert problem in line and not list(tmp_path.iterdir())


def test_document_of_plan_has_the_probe_and_trains(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.setattr(plan_run, "find_largest_batch", lambda *arguments: 1)
    source = source_of()
    source.profile.write(tmp_path / "profile.json")
    words = [*PLAN, *CHOOSE, "--profile", str(tmp_path / "profile.json"), "--probe-kimg", "0.125"]
    assert main([*words, "--memory", "0.091", "--json"]) == 0
    printed = capsys.readouterr()
    assert "probe     lr x 0.5: fd 1000 after 0.125 kimg\n" in printed.err
    (tmp_path / "plan.json").write_text(printed.out)
    plan = read_parallel_plan(tmp_path / "plan.json")
    assert plan.settings["g.optimizer.lr"] == pytest.approx(0.004)
    assert {one.g.micro_batches for one in trained} == {2}
    here = replace(plan, machine=device.machine(device.select_device()))
    assert apply_plan(source.config, here, 4).d.optimizer.lr == pytest.approx(0.004)


def test_train_starts_with_the_rates_of_the_probe_and_a_resume_has_no_probe(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planned_training, "profiled", lambda config, recipe, say: replace(source_of(), config=config))
    monkeypatch.setattr(TrainingLoop, "compute_score", lambda loop: Score({"fd": 1.0}, 10, {}))
    short = [*TRAIN, "train.kimg=0.064", "every.sample_kimg=0", "every.score_kimg=0", "--out", "run"]
    words = [*short, "--plan", "auto", "--probe-kimg", "0.016"]
    assert main(words) == 0
    assert "probe     lr x 2: fd 500 after 0.032 kimg" in capsys.readouterr().out
    assert read_recipe("run/config.yaml").d.optimizer.lr == pytest.approx(0.002)
    assert len(trained) == 5
    assert main(words) == 0
    assert len(trained) == 5 and "run has its settings" in capsys.readouterr().out
