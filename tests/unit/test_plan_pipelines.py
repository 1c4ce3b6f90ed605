"""Plans of pipelines: cuts, shares, waiting and bytes; and what `plan` refuses."""

from __future__ import annotations

import json

import pytest

from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.parallel._pipeline_cuts import BlockCost
from paragan.runs.measured_schedule import measure_schedules
from paragan.runs.shape_only_data import shape_only_data
from paragan.scaling.pipeline_plan import PipelineSize, plan_pipeline
from paragan.scaling.pipeline_schedule import idle_share_of

BOTH = ("g.strategy=pipeline", "d.strategy=pipeline")
COSTS = [BlockCost(3.0, 10, 1.0), BlockCost(9.0, 20, 3.0), BlockCost(6.0, 5, 2.0), BlockCost(6.0, 1, 2.0)]


def test_pipeline_plan_has_balanced_cuts_shares_bubble_and_bytes():
    plan = plan_pipeline(COSTS, PipelineSize(2, 1, 4, 8), None, is_measured=True)
    assert plan.cuts == (2,) and plan.stage_shares == (0.5, 0.5)
    assert plan.bubble == pytest.approx(1 / 5) == plan.equal_bubble
    assert plan.sent_bytes == 2 * 4 * 8 * 20
    assert plan.turn_s == pytest.approx(5 * 12.0)


def test_pipeline_plan_with_cuts_of_the_config_uses_them():
    plan = plan_pipeline(COSTS, PipelineSize(2, 1, 4, 8), (1,), is_measured=False)
    assert plan.cuts == (1,) and plan.stage_shares == (0.125, 0.875) and plan.turn_s is None
    assert plan.bubble > plan.equal_bubble


def test_pipeline_plan_with_split_backward_waits_less():
    plans = [plan_pipeline(COSTS, PipelineSize(2, 1, 4, 8, split), None, is_measured=True) for split in (False, True)]
    assert plans[1].bubble < plans[0].bubble and plans[1].turn_s == pytest.approx(plans[0].turn_s - 12.0 / 3)
    assert plans[0].stage_shares == plans[1].stage_shares


def test_plan_prints_pipelines_and_their_cuts(capsys):
    words = ["plan", "digits", "devices=2", *BOTH, "g.strategy.micro_batches=4", "model.width=8"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "pipeline  work of each rank  micro-batches  bubble" in out and "g.strategy.cuts=[2]  blocks 0-1 | 2-" in out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["pipelines"]
    assert found.keys() == {"g", "d"} and found["g"]["stages"] == 2 and 0 < found["g"]["bubble"] < 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (BOTH, "a pipeline of one rank; pass devices=N, or g.strategy.stages=N"),
        (("--timeline", "t.svg"), "pass --measure devices=N g.strategy=pipeline, too"),
        (("--measure", "--timeline", "t.txt", "devices=2", *BOTH), "--timeline t.txt: unknown format '.txt'"),
        (("--workers", "1,2", *BOTH), "strategy pipeline has no forecast on other numbers of workers"),
    ],
)
def test_plan_refuses_pipelines_it_cannot_plan(capsys, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "digits", "model.width=8", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.distributed
def test_measured_schedule_has_busy_times_of_both_ranks():
    alternating = ("d.strategy.schedule=1f1b", "d.strategy.micro_batches=8")
    words = ("devices=2", *BOTH, "g.strategy.micro_batches=2", *alternating, "model.width=32", "train.threads=1")
    found = measure_schedules(read_recipe("digits", words), shape_only_data((1, 16, 16), 10, False))
    assert found.keys() == {"g", "d"}
    for busy in found.values():
        assert {(one.rank, one.is_backward) for one in busy} == {(r, b) for r in (0, 1) for b in (False, True)}
        assert all(0 <= one.start_s < one.stop_s for one in busy) and 0 < idle_share_of(busy) < 1
    passes = {side: [one.is_backward for one in busy if one.rank == 1] for side, busy in found.items()}
    assert passes["g"] == sorted(passes["g"]) and passes["d"] != sorted(passes["d"])
