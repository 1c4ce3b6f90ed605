"""Whole command lines on data from a URL: killed and resumed on other numbers of ranks, with the same samples."""

import json
import subprocess
import sys

import pytest

from benchmarks.storage_emulator import Conditions
from tests.prepared_shards import image_folder, prepared
from tests.processes import environment
from tests.remote_storage import remote_folder, skip_without_s3

pytestmark = [pytest.mark.distributed, pytest.mark.chaos]

FAULTY = Conditions(latency_ms=5, sigma=0.7, cut=0.03, truncated=0.03, unavailable=0.03, wrong_bytes=0.01)
BATCH = 12
STEPS = 30
SETTINGS = (
    "data.name=shards", "data.size=8", "data.disk_cache_mb=0", "loading.prefetch=3",
    "loading.threads=2",
    "model.width=4", "model.latent=8", f"train.batch={BATCH}", "train.kimg=0.36", "train.timeout_s=60",
    "every.save_kimg=0.06", "every.sample_kimg=0", "evaluation.features=null", "penalties=[{name: odd.seen}]",
)  # fmt: skip
PENALTY = '''
"""Records the real images of every step on this rank, and kills the process at the step KILL_AT on rank 0."""
import hashlib, json, os
from paragan.core import protocols
from paragan.core.types import Side

BATCH = 12

class Penalty(protocols.Penalty):
    name, side, interval = "seen", Side.D, 1

    def __init__(self, options):
        pass

    def __call__(self, context):
        rows, rank = context.feed.rows, os.environ.get("RANK", "0")
        images = [hashlib.sha256(image.tobytes()).hexdigest() for image in context.feed.real_sample.detach().numpy()]
        line = {"step": rows.step, "first": rows.first, "images": images}
        zero = 0 * context.outputs.real.logits_B.reshape(len(images), -1).sum(1)
        if rows.total != BATCH:  # the trial before training
            return zero
        with open(f"{os.environ['SEEN']}/{os.environ['SESSION']}-{rank}.jsonl", "a") as file:
            file.write(json.dumps(line) + "\\n")
        if rank == "0" and str(rows.step) == os.environ.get("KILL_AT"):
            os.kill(os.getpid(), 9)
        return zero
'''


def train(folder, session, out, *words, **variables):
    """Train, or resume; returns the exit status."""
    command = [sys.executable, "-m", "paragan", "train", *words, "--out", str(out)]
    variables = environment(SEEN=str(folder), SESSION=session, **variables)
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


def seen_images(folder, session):
    """Image hashes by step and place in the batch."""
    found = {}
    for path in folder.glob(f"{session}-*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            for number, image in enumerate(line["images"]):
                found.setdefault(line["step"], {})[line["first"] + number] = image
    return {step: [images[place] for place in sorted(images)] for step, images in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["http", "s3"])
def test_killed_runs_resume_with_the_same_samples_on_other_ranks(tmp_path, place):
    skip_without_s3(place)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "seen.py").write_text(PENALTY)
    prepared(image_folder(tmp_path / "images", 50), tmp_path / "shards", samples_per_shard=7)
    code, text = train(tmp_path, "disk", tmp_path / "plain", "own", f"data.path={tmp_path / 'shards'}", *SETTINGS)
    assert code == 0, text
    expected = seen_images(tmp_path, "disk")
    assert list(expected) == list(range(STEPS)) and all(len(images) == BATCH for images in expected.values())

    out = tmp_path / "run"
    with remote_folder(tmp_path / "shards") as served:
        served.servers[place].conditions = FAULTY
        path = f"data.path={served.urls[place]}"
        code, text = train(tmp_path, "one", out, "own", path, *SETTINGS, KILL_AT="8")
        assert code == -9, text
        code, text = train(tmp_path, "three", out, str(out), "--trust", "devices=3", KILL_AT="17")
        assert code not in (0, 2), text
        code, text = train(tmp_path, "two", out, str(out), "--trust", "devices=2")
        assert code == 0, text
    found = {session: seen_images(tmp_path, session) for session in ("one", "three", "two")}
    assert [(min(steps), max(steps)) for steps in found.values()] == [(0, 8), (5, 17), (15, STEPS - 1)]
    for steps in found.values():
        assert all(images == expected[step] for step, images in steps.items() if len(images) == BATCH)
    assert set().union(*found.values()) == set(expected)
    assert all(len(images) == BATCH for images in found["two"].values())
