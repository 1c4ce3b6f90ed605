"""kill -9 of a run that another process scores: both end, and the resumed run has the scores of an inline run."""

import json
import signal
import subprocess
import sys

import pytest

from paragan.cli.main import main
from paragan.core.local_processes import is_running
from tests.processes import children, environment, running, wait_for

pytestmark = pytest.mark.chaos
SETTINGS = (
    *("data.size=32", "model={name: mlp, latent: 8}", "train.batch=16", "train.threads=1", "augment=null"),
    *("penalties=[]", "every.sample_kimg=0", "every.save_kimg=0.16", "every.log_steps=5", "every.score_kimg=0.48"),
    *(
        "evaluation.num_images=250",
        "evaluation.features=mnist",
        "evaluation.resamples=2",
        "train.kimg=0.64",
        "writers=[jsonl]",
    ),
)


def command(out, *words):
    return ["train", "digits", *SETTINGS, *words, "--out", str(out)]


def scores(out):
    """Scores by step, without what differs: when they were recorded, and by which mode."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["kind"] == "score"]
    assert len({line["step"] for line in found}) == len(found), "a score was repeated"
    return {line["step"]: {k: v for k, v in line.items() if k not in ("seconds", "evaluation_mode")} for line in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [(), ("devices=2",), ("devices=2", "g.strategy=zero3", "d.strategy=zero3"), ("devices=2", "scheme=asynchronous")],
    ids=["alone", "ddp", "zero3", "asynchronous"],
)
def test_killed_run_has_the_scores_of_an_inline_run(tmp_path, words):
    out = tmp_path / "run"
    assert main(command(tmp_path / "inline")) == 0
    expected = scores(tmp_path / "inline")
    assert sorted(expected) == [0, 30, 40]

    later = out / "background" / "step-000000030" / "manifest.json"
    launch = [sys.executable, "-m", "paragan", *command(out, "evaluation.mode=background", *words)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(launch, env=environment(), start_new_session=True, **pipes) as process:
        wait_for(later.exists, process)
        below = children(process.pid)
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: not any(map(is_running, below)), seconds=60)
    assert below

    if words:
        subprocess.run(launch, env=environment(), capture_output=True, timeout=200, check=True)
    else:
        assert main(command(out, "evaluation.mode=background")) == 0
    found = scores(out)
    assert 40 in found and found.keys() <= expected.keys()
    if not words:
        assert found == {step: expected[step] for step in found}
