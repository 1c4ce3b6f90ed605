"""Runs under drawn faults: each ends as the undisturbed run does. `tests/chaos/campaigns.py` has the list."""

import subprocess
import sys

import pytest

from tests.chaos.campaign import write_plan
from tests.chaos.campaigns import CAMPAIGNS, run
from tests.chaos.faults import EARLY, STRATEGIES, draw_faults, draw_network_faults
from tests.chaos.invariants import Broken, check, repeated, report
from tests.chaos.network import lacking
from tests.processes import ROOT, environment
from tests.tiny_run import train

pytestmark = pytest.mark.chaos


def assert_survived(found, count):
    assert found["failed"] == ""
    assert found["injected"] == found["survived"] == count


@pytest.mark.slow
def test_a_run_survives_one_fault_of_each_kind(tmp_path):
    found = run("brief", "ddp", 0, 1, tmp_path / "root", 200)
    assert_survived(found, found["injected"])
    assert {"kill", "term", "flip", "clock", "decode"} <= found["kinds"].keys()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kind", "strategy", "count", "seed"), CAMPAIGNS)
def test_a_run_survives_its_faults(tmp_path, kind, strategy, count, seed):
    if kind == "network" and lacking():
        pytest.skip(f"not run: {lacking()}")
    assert_survived(run(kind, strategy, count, seed, tmp_path / "root"), count)


def test_every_phase_that_faults_begin_in_is_there():
    """In a process of its own, as patches stay. Renamed methods would end each campaign before its first fault."""
    path = f"{ROOT}:{ROOT / 'src'}"
    command = [sys.executable, "-c", "from tests.chaos.inject import install; install()"]
    ended = subprocess.run(command, env=environment(PYTHONPATH=path), capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr[-500:]


def test_campaigns_have_200_faults_of_every_kind_and_phase():
    drawn = [draw_faults(name, count, seed) for kind, name, count, seed in CAMPAIGNS if kind == "forks"]
    drawn += [draw_network_faults(name, count, seed) for kind, name, count, seed in CAMPAIGNS if kind == "network"]
    faults = [fault for one in drawn for fault in one]
    assert sum(count for _, _, count, _ in CAMPAIGNS) >= 200
    assert draw_faults("ddp", 12, 1) == draw_faults("ddp", 12, 1) != draw_faults("ddp", 12, 2)
    assert {"kill", "stop", "term", "flip", "full", "read-only", "clock", "decode"} <= {fault.kind for fault in faults}
    assert {"launcher kill", "launcher stop", "launcher term"} <= {fault.kind for fault in faults}
    assert {"delay", "loss", "cut", "long cut"} <= {fault.kind for fault in faults}
    phases = {"d turn", "g turn", "update", "samples", "score", "save", "written", "pruned", *EARLY[1:]}
    assert phases <= {fault.phase for fault in faults}
    assert all(one == sorted(one, key=lambda fault: fault.step) for one in drawn)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Two equal runs with a record."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("run", "straight"):
        (root / name).mkdir()
        train(root / name)
        (root / name / "metrics.jsonl").write_text(
            "".join(f'{{"kind": "step", "step": {n}, "d": 1.5}}\n' for n in range(1, 5))
        )
    return root


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("metrics.jsonl", lambda data: data.replace(b"1.5", b"1.6", 1), "step 1 differs"),
        ("metrics.jsonl", lambda data: b"".join(data.splitlines(True)[:-1]), "steps of the record"),
        ("metrics.jsonl", lambda data: data + data.splitlines(True)[-1], "repeat or are out of order"),
        ("checkpoints/step-000000004/g.safetensors", lambda data: data[:-1] + b"?", "the final weights differ"),
        ("checkpoints/.left.tmp", lambda data: b"", "left behind"),
    ],
)
def test_check_of_a_run_that_differs_raises(two_runs, name, change, message):
    run, straight = two_runs / "run", two_runs / "straight"
    check(STRATEGIES["ddp"], run, straight, 4)
    path = run / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(change(before or b""))
    try:
        with pytest.raises(Broken, match=message):
            check(STRATEGIES["ddp"], run, straight, 4)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def test_report_of_a_run_that_repeats_more_than_a_checkpoint_has_failed(tmp_path):
    plan = write_plan(tmp_path / "plan", faults := draw_faults("alone", 1, 1), tmp_path / "run")
    (plan / "fault-0").write_text("0.0\n")
    (plan / "steps").write_text("".join(f"0.0 {step} {pid}\n" for pid, step in [(1, 8), (1, 9), (2, 4), (2, 5)]))
    assert repeated(plan) == [5]
    assert "repeated [5] steps" in report(faults, plan, "", [0])["failed"]
    (plan / "steps").write_text("0.0 9 1\n0.0 8 2\n")
    assert report(faults, plan, "", [0])["failed"] == ""
    (plan / "fault-0").unlink()
    assert "did not happen" in report(faults, plan, "", [0])["failed"]
