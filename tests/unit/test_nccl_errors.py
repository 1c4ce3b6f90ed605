"""What `transport=nccl` is refused for: one line, before anything is trained."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from paragan.build import communicators, workers
from paragan.build.worker import join_coordinator
from paragan.config import dump, read_recipe
from paragan.core.errors import ConfigError
from paragan.distributed.launch import handshake
from paragan.distributed.transports.control import Listener
from paragan.distributed.transports.signed_frames import new_token
from paragan.hardware import peers

WORDS = ("train.threads=1", "grid.shape=2x2", "evaluation.features=null", "transport=nccl")


def config(*words):
    return read_recipe("digits", [*WORDS, *words])


@pytest.mark.parametrize("count", [0, 1])
def test_nccl_with_too_few_accelerators_raises(tmp_path, monkeypatch, count):
    monkeypatch.setattr(peers, "num_nccl_devices", lambda: count)
    with pytest.raises(ConfigError) as found:
        workers.evolution_on_workers(config("workers=2"), tmp_path / "run", print, lambda: False)
    problem = f"nccl needs an accelerator for each of 2 workers, and this host has {count}"
    assert str(found.value) == f"transport: {problem}; use gloo"
    assert not (tmp_path / "run").exists()


def test_nccl_worker_needs_a_separate_accelerator():
    first, second = ({**handshake.worker_info("device:0"), "accelerator": name} for name in "ab")
    assert handshake.nccl_conflict(first, []) == handshake.nccl_conflict(second, [first]) == ""
    shared = handshake.nccl_conflict(dict(first), [second, first])
    assert shared.startswith("transport=nccl requires one accelerator for each worker, and another trains on device:0")
    assert "requires an accelerator, and it trains on cpu; use transport=gloo" in handshake.nccl_conflict(
        handshake.worker_info("cpu"), [second]
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="a worker on the CPU is meant")
def test_nccl_worker_on_the_cpu_is_refused_with_a_reason():
    run, listener, said = config(), Listener(new_token()), []
    server = workers._CoordinatorServer(run, None, said.append, "", listener, {"config": dump(run)}, None, None)
    server.coordinator = SimpleNamespace(membership=SimpleNamespace(members=[]))
    over = threading.Event()

    def accept():
        while not over.is_set():
            assert server._accept() is None
            over.wait(0.02)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        with pytest.raises(
            ConfigError,
            match=r"refused by the coordinator at .*: transport=nccl requires an accelerator, and it trains on cpu",
        ):
            join_coordinator(listener._token, *listener.address, lambda text: None)
    finally:
        over.set()
        thread.join(5)
        listener.close()
    assert len(said) == 1 and said[0].endswith("use transport=gloo")


def test_nccl_worker_that_shares_an_accelerator_is_refused_with_a_reason():
    class Came:
        peer_info, peer_address = {**handshake.worker_info("device:0"), "accelerator": "a"}, "somebody"

        def send(self, kind, **values):
            self.told = kind, values

        def close(self):
            self.closed = True

    run, came = config(), Came()
    server = workers._CoordinatorServer(run, None, lambda text: None, "", None, {"config": dump(run)}, None, None)
    waiting = [came]
    server.listener = type(
        "Listener", (), {"refused": (), "accept": lambda self, wait_s: waiting.pop() if waiting else None}
    )()
    member = type("Member", (), {"line": Came()})()
    server.coordinator = SimpleNamespace(membership=SimpleNamespace(members=[member]))
    assert server._accept() is None
    assert came.told[0] == "refused" and "another trains on" in came.told[1]["reason"] and came.closed
    server.coordinator.membership.members, waiting[:] = [], [came]
    assert server._accept() is came and came.told[0] == "welcome"


def test_nccl_under_mpiexec_raises(tmp_path, monkeypatch):
    from paragan.runs.run_request import RunRequest
    from paragan.runs.start_grid import start_grid

    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(ConfigError, match="transport=nccl does not work in 4 processes of mpiexec; use transport=mpi"):
        start_grid(RunRequest(config(), "digits", tmp_path / "run", overrides=WORDS))


def test_coordinator_of_nccl_workers_uses_gloo(monkeypatch):
    """It trains nothing, and so has nothing to send from a device."""
    made = []
    monkeypatch.setattr(communicators, "GlooCommunicator", lambda *words, **options: made.append(("links", options)))
    monkeypatch.setattr(communicators, "NcclCommunicator", lambda *words, **options: made.append(("direct", options)))
    order = {"membership": "1", "rank": 0, "size": 2, "peers": [1]}
    device = torch.device("meta")
    for of_worker in (None, device):
        communicators.communicator_factory(config(), dist.HashStore(), of_worker)(order, lambda: False)
    assert [kind for kind, _ in made] == ["links", "direct"]
    assert made[1][1]["device"] == device and made[1][1]["pair"] is peers.connect_nccl_pair
