"""From accelerator to accelerator: an exchange, a neighbour that is killed or stopped, a run; and what one alone shows.

What needs no device is also run here on the CPU, with another backend in the place of the accelerators' own.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from paragan.coevolution.genome import Genome, Traits
from paragan.core.types import Side
from paragan.hardware import peers
from tests.distributed.test_communicators_mishaps import begin, end, program, survived
from tests.gpu.test_cells import SMALL, on
from tests.processes import environment

ONE = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")]
TWO = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        peers.num_nccl_devices() < 2, reason="needs two accelerators: NCCL takes no two processes on one"
    ),
]
DEVICES = ["cpu", pytest.param("cuda", marks=TWO)]
WAIT_S = 200


def run(folder, size, kind, what):
    """What they tell, the last one not where it meets with a mishap."""
    processes = [begin(program("tests.gpu.two_direct", folder, rank, size, kind, what)) for rank in range(size)]
    tell = size if what in ("equals", "one") else size - 1
    try:
        for process in processes[:tell]:
            printed, _ = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0, printed[-6000:]
    finally:
        end(processes)
    return [json.loads((folder / f"told-{rank}").read_text()) for rank in range(tell)]


@pytest.mark.distributed
@pytest.mark.parametrize("kind", [pytest.param("cpu", marks=pytest.mark.slow), *DEVICES[1:]])
def test_what_arrives_is_what_a_dictionary_holds(tmp_path, kind):
    assert run(tmp_path, 2, kind, "equals") == [{}, {}]


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("what", ["kill", "stop", "stop/flag"])
@pytest.mark.parametrize("kind", DEVICES)
def test_who_is_gone_is_named_and_the_other_goes_on(tmp_path, kind, what):
    survived(run(tmp_path, 2, kind, what), what)


@pytest.mark.distributed
@pytest.mark.parametrize("kind", [pytest.param("cuda", marks=ONE)])
def test_two_workers_on_one_accelerator_get_a_remedy(tmp_path, kind):
    for told in run(tmp_path, 2, kind, "one"):
        assert told["error"].startswith("ConfigError: transport: no connection from worker"), told
        assert told["error"].endswith("use gloo"), told


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=ONE)])
def test_a_genome_in_parts_is_the_same_and_where_it_was(kind):
    """An optimiser's steps are on the host, and stay there: on a device every step would wait for them."""
    cell = on(kind)[0]
    cell.train_step(0)
    device = next(cell.players[Side.G].net.parameters()).device
    for player in cell.players.values():
        genome = Genome.from_player(player, Traits(1e-3))
        front, body = genome.pack_split(device)
        assert front.device.type == "cpu" and body.device == device
        found = Genome.unpack(front, genome, body)
        assert found.digest == genome.digest
        assert {n: t.device for n, t in found.tensors.items()} == {n: t.device for n, t in genome.tensors.items()}
        found.load_into(player)
        assert Genome.from_player(player, Traits(1e-3)).digest == genome.digest


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_has_the_same_name_everywhere():
    asked = "import torch; from paragan.hardware import peers; print(peers.accelerator_uuid(torch.device('cuda', 0)))"
    told = subprocess.run([sys.executable, "-c", asked], env=environment(), capture_output=True, text=True, check=True)
    assert told.stdout.strip() == peers.accelerator_uuid(torch.device("cuda", 0)) != "None"


@pytest.mark.distributed
@pytest.mark.parametrize("transport", [pytest.param("nccl", marks=TWO)])
def test_a_run_goes_past_the_host(tmp_path, transport):
    folder = tmp_path / "run"
    words = ["grid.shape=2x2", "grid.batches=10", "train.kimg=1.6", "train.batch=8", SMALL, "evaluation.features=null"]
    words += ["workers=2", f"transport={transport}", "penalties=[]", "augment=null", "every.sample_kimg=0"]
    command = [sys.executable, "-m", "paragan", "train", "digits", *words, "--out", str(folder)]
    told = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S)
    assert told.returncode == 0 and "2 with 2, 2 cells" in told.stdout + told.stderr, told.stdout + told.stderr
