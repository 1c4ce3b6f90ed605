"""A grid on an accelerator: what the CPU computes, whichever the executor, and workers of both kinds."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import torch

from benchmarks import gpu_cells
from paragan.core.types import Side
from paragan.extensions.grid.executors import choice, stacked
from paragan.hardware import graphs
from tests.laws.test_loop_is_stacked import BATCH, cells, loss_of
from tests.marks import slow
from tests.processes import environment
from tests.tape_graph import TapeGraph

ACCELERATOR = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")]
DEVICES = ["cpu", pytest.param("cuda", marks=ACCELERATOR)]
SMALL = "model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}"


def on(device):
    """The cells of the law, on a device."""
    from dataclasses import replace

    from paragan.game.ema import Ema
    from paragan.game.player import Player

    found = cells()
    for cell in found:
        for side, old in cell.players.items():
            ema = None if old.ema is None else Ema(old.ema.net.to(device), old.ema.options)
            made = Player(side=side, net=old.net.to(device), strategy=old.strategy, policy=old.policy, ema=ema)
            setattr(cell.gan, side.value, made)
        cell.gan.prior = replace(cell.gan.prior, device=torch.device(device))
        cell.batches.device = device
    return found


EXECUTORS = {
    "loop": lambda device: choice.train_in_loop,
    "stacked": lambda device: stacked.StackedExecutor(BATCH),
    "recorded": lambda device: partial(
        stacked.StackedExecutor(BATCH), graph=graphs.graph_factory(torch.device(device)) or TapeGraph
    ),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("device", DEVICES)
def test_the_device_computes_what_the_cpu_computes(device, executor):
    there, here, kind = on(device), cells(), EXECUTORS[executor](device)
    for first in (0, 8):
        kind(there, 8, lambda cell, batch, first=first: loss_of(cell, batch + first))
    choice.train_in_loop(here, 16, loss_of)
    for a, b in zip(there, here, strict=True):
        for side in Side:
            for mine, theirs in zip(a.players[side].net.parameters(), b.players[side].net.parameters(), strict=True):
                assert float((mine.detach().cpu() - theirs.detach()).abs().max()) < 1e-9


@pytest.mark.parametrize("shape", ["2x2"])
def test_executors_are_timed_beside_each_other(shape):
    """On the CPU, small: the benchmark runs."""
    found = gpu_cells.ratio(shape, 1, SMALL)
    assert found["loop / stacked"] > 0 and found["stacked_ms_per_cell"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_a_worker_on_the_cpu_beside_one_on_the_accelerator(tmp_path, started):
    folder = tmp_path / "run"
    words = ["grid.shape=2x2", "grid.batches=10", "train.kimg=1.6", "train.batch=8", SMALL, "evaluation.features=null"]
    words += ["workers=1", "penalties=[]", "augment=null", "every.sample_kimg=0", "train.timeout_s=60"]
    command = [sys.executable, "-m", "paragan", "train", "digits", *words, "--out", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    first = subprocess.Popen(command, env=environment(), cwd=tmp_path, **pipes)
    started.append(first)
    while "to add a worker, run" not in (line := first.stdout.readline()):
        assert line
    told = {"PARAGAN_TOKEN_FILE": str(folder / "ranks" / "token"), "CUDA_VISIBLE_DEVICES": ""}
    join = [sys.executable, "-m", "paragan", "worker", line.split()[-1], "--device", "cpu"]
    started.append(subprocess.Popen(join, env={**os.environ, **environment(), **told}, cwd=tmp_path, **pipes))
    out, _ = first.communicate(timeout=200)
    assert first.returncode == 0 and "2 with 2, 2 cells" in out, out


@pytest.mark.parametrize("device", [slow("cpu"), *DEVICES[1:]])
def test_the_mixture_of_a_grid_is_scored_where_its_cells_are(tmp_path, device):
    """What is here is used: the CPU where there is no accelerator."""
    words = ["grid.shape=2x2", "grid.batches=10", "train.kimg=0.32", "train.batch=8", SMALL, "data.size=8"]
    words += ["penalties=[]", "augment=null", "every.sample_kimg=0", "evaluation.num_images=100"]
    command = [sys.executable, "-m", "paragan", "train", "digits", *words, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "score.json").read_text())["fd[judge]"] > 0
