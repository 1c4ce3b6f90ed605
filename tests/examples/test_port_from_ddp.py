"""The ported loop equals the hand-written one bit for bit, on one rank and on two, and is shorter."""

import inspect
import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.examples.conftest import FOLDER

SRC = FOLDER.parent / "src"


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=60))
    yield
    dist.destroy_process_group()


@pytest.fixture
def port(example):
    return example("port_from_ddp")


def test_ddp_port_on_one_rank_equals_the_loop_by_hand(one_rank, port):
    old, new = port.main(steps=20)
    start = [weight for net in port.networks() for weight in net.parameters()]
    assert all(torch.equal(mine, remote) for mine, remote in zip(old, new, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(new, start, strict=False) if a.dim() == 2)  # all of it trained


@pytest.mark.parametrize("name", ["GAMMA", "R1_EVERY", "CLIP", "HALF_LIFE", "BATCH"])
def test_ddp_port_every_setting_reaches_the_weights(one_rank, port, monkeypatch, name):
    before = port.main(steps=6)[1]
    monkeypatch.setattr(port, name, {"R1_EVERY": 3, "BATCH": 16}.get(name, getattr(port, name) / 100))
    old, new = port.main(steps=6)
    assert all(torch.equal(mine, remote) for mine, remote in zip(old, new, strict=True))
    assert not all(torch.equal(mine, remote) for mine, remote in zip(before, new, strict=True))


@pytest.mark.distributed
@pytest.mark.slow
def test_ddp_port_on_two_ranks_equals_the_loop_by_hand():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port_number = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port_number, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    environment = {**os.environ, **shared, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-W", "ignore", str(FOLDER / "port_from_ddp.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}, **pipes) for rank in range(2)]
    try:
        output = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], output
    first, second = (line.removeprefix(f"rank {n}: ") for n, line in enumerate(output))
    assert first == second  # the sum of all weights is part of the line
    assert first.startswith("equal bit for bit")


def test_ddp_port_is_less_than_half_as_long(port):
    by_hand, ported = (len(inspect.getsource(f).splitlines()) for f in (port.by_hand, port.ported))
    assert ported < by_hand / 2
