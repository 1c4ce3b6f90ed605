"""The poster's program as it is printed, under `python` and under torchrun."""

import json
import os
import subprocess
import sys

import pytest

from tests.examples.conftest import FOLDER

FILE = FOLDER / "paragan_poster.py"
PRINTED = """import paragan as pg
class Generator:
def model_fn(latent_var, y):
# generator model
return output
class Discriminator:
def model_fn(x, y):
# discriminator model
return output, out_logit
scale_mgr = pg.ScalingManager(config=cfg, bs=2048, num_workers=128)
g = Generator()
d = Discriminator()
gan = pg.Estimator(g, d)
# train
for step in cfg.max_steps:
scale_mgr.train(gan)
# evaluate
scale_mgr.eval(metric="fid")"""  # the poster has 'fid'; our formatter wants double quotes


def program(folder, *words, launcher=()):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
    quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(FOLDER.parent / "src")}
    command = [sys.executable, *launcher, str(FILE), *words]
    done = subprocess.run(
        command, cwd=folder, env={**kept, **quiet}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = folder / "runs" / "paragan_poster"
    assert json.loads((run / "exit.json").read_text())["reason"] == "finished"
    return done.stdout, json.loads((run / "score.json").read_text())


def test_poster_example_has_every_printed_line_in_order():
    lines = iter([line.strip().replace("(self, ", "(") for line in FILE.read_text().splitlines()])
    assert [line for line in PRINTED.splitlines() if line not in lines] == []


@pytest.mark.slow
def test_poster_example_learns_the_digits_by_class(tmp_path):
    printed, score = program(tmp_path, "train.kimg=16", "every.sample_kimg=0")
    assert "workers   found 1 instead of 128: batches of 16 images, 16 each; lr g 0.0005, d 0.0005 (sqrt" in printed
    assert f"eval      fid is fd[judge] {score['fd[judge]']:.4g}" in printed
    assert score["label_accuracy"] > 0.6
    assert score["coverage"] > 0.2


@pytest.mark.slow
@pytest.mark.distributed
def test_poster_example_runs_under_torchrun(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    printed, score = program(tmp_path, "train.kimg=2", "evaluation.num_images=50", launcher=launcher)
    assert "workers   found 2 instead of 128: batches of 32 images, 16 each; lr g 0.000707" in printed
    assert "ranks     2 on 1 host: G ddp, D ddp; 16 of 32 images each" in printed
    assert printed.count("finished: step 32, ") == printed.count("eval      fid is") == 1
    assert score["step"] == 32
