"""The poster's program under torchrun: two workers are one with the batch of both, wherever their weights came from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, os, sys
import torch
import paragan as pg
from paragan.features.base import classifier as classifier
from tests.laws.poster_nets import Discriminator, Generator, PosterDiscriminator, PosterGenerator

classifier.STEPS = 20  # of the judge: how well it judges does not matter
rank, bs, num_workers, odd = int(os.environ.get("RANK", 0)), *map(int, sys.argv[1:4])
cfg = pg.config.read_recipe("digits", [
    "data.size=8", "train.batch=16", "train.kimg=0.064", "train.timeout_s=60", "every.sample_kimg=0",
    "every.save_kimg=0", "every.score_kimg=0", "every.check_steps=1", "evaluation.num_images=20", "writers=[jsonl]",
    "g.precision=fp32", "d.precision=fp32",
])
torch.manual_seed(rank)  # each rank draws its own weights
g, d = PosterGenerator(Generator()), PosterDiscriminator(Discriminator())
if rank == odd:
    g.paint = torch.nn.Sequential(*g.paint, torch.nn.Conv2d(1, 1, 1))
scale_mgr, gan = pg.ScalingManager(config=cfg, bs=bs, num_workers=num_workers, out="run"), pg.Estimator(g, d)
d.see[2] = torch.nn.Identity()  # dropout is drawn for the rows of a rank
try:
    for step in cfg.max_steps:
        scale_mgr.train(gan)
    told = [scale_mgr.world.size, scale_mgr.config.train.batch, scale_mgr.eval(metric="fid")]
except pg.ParaganError as error:
    told = [type(error).__name__, str(error)]
with open(f"told-{rank}.json", "w") as file:
    json.dump(told, file)
"""

TUNED = PROGRAM.replace('out="run")', 'out="run", tune={"g.optimizer.lr": "1e-3,1e300"}, trials=4)')
TUNED = TUNED.replace("told = [", "told = [scale_mgr.config.g.optimizer.lr, ")


def program(folder, bs, num_workers, ranks, odd=-1, text=PROGRAM):
    """What each rank told, what the program printed."""
    folder.mkdir()
    (folder / "poster.py").write_text(text)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
    quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, *launcher, "poster.py", *map(str, (bs, num_workers, odd))]
    pipes = {"capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run(command, cwd=folder, env={**kept, **quiet}, **pipes)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"told-{rank}.json").read_text()) for rank in range(ranks)], done.stdout


@pytest.mark.slow
def test_two_workers_are_one_with_the_batch_of_both(tmp_path):
    told, printed = program(tmp_path / "two", bs=64, num_workers=4, ranks=2)
    assert [one[:2] for one in told] == [[2, 32], [2, 32]]
    assert told[0][2] == told[1][2]
    assert "workers   found 2 instead of 4: batches of 32 images, 16 each; lr g 0.00141, d 0.00141 (sqrt" in printed
    assert printed.count("eval      fid is fd[judge]") == 1
    (alone,), _ = program(tmp_path / "one", bs=32, num_workers=1, ranks=1)
    assert alone[:2] == [1, 32]
    for side in "gd":
        ours, theirs = (load_file(_newest(tmp_path / name) / f"{side}.safetensors") for name in ("two", "one"))
        assert ours.keys() == theirs.keys()
        weights = [key for key in ours if key.startswith("net/")]
        assert all(torch.allclose(ours[key], theirs[key], atol=1e-4) for key in weights)


@pytest.mark.slow
def test_other_networks_on_another_rank_are_one_line(tmp_path):
    told, _ = program(tmp_path / "two", bs=32, num_workers=2, ranks=2, odd=1)
    said = "PosterGenerator: the networks differ between ranks; create the same on all"
    assert ["ConfigError", said] in told
    assert all(line.endswith(said) for _, line in told)  # who is told of it by the other says so


def _newest(folder):
    return max((folder / "run" / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_ranks_train_each_trial_together_and_agree_on_its_end_and_on_the_best(tmp_path):
    told, printed = program(tmp_path / "tuned", 16, 2, 2, text=TUNED)
    assert told[0] == told[1] and told[0][0] == 1e-3
    lines = [line for line in printed.splitlines() if line.startswith("trial ")]
    assert len(lines) == 4
    assert {"g.optimizer.lr=1e300" in line for line in lines} == {True, False}  # some diverge, on both ranks
    assert all("–" in line for line in lines if "g.optimizer.lr=1e300" in line)
