"""Workers whose data goes past their links, with gloo for what accelerators have."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist

from paragan.core.errors import ConfigError
from paragan.distributed.transports import gloo_communicator, nccl_communicator
from paragan.distributed.transports.waiting import WorkerError
from tests.distributed import cases_direct
from tests.distributed.cases_communicators import GRAPHS, MOST_BYTES, PATIENCE_S, fine, gathers, play, together
from tests.distributed.cases_direct import join
from tests.distributed.test_communicators_mishaps import begin, end, program, survived
from tests.processes import ROOT, environment

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_direct"
PAIR = GRAPHS["pair"]
FAR_S = PATIENCE_S / 4  # far less than the time-out, far more than it takes


def message(value, length=3):
    return torch.full((length,), value, dtype=torch.uint8)


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def threads(graph, **options):
    """The communicators of workers that are threads here, by rank."""
    store = dist.HashStore()
    return fine(together(len(graph), lambda rank: join(store, rank, graph, **options)))


@contextmanager
def both(**options):
    """Two workers, dropped in the end."""
    comms = threads(PAIR, **options)
    try:
        yield comms
    finally:
        [comm.abort() for comm in comms]


def test_two_processes_exchange_what_a_dictionary_holds(two_ranks):
    two_ranks.run(f"{CASES}:equals", graph="pair", rounds=20)


def test_four_processes_exchange_what_a_dictionary_holds(four_ranks):
    four_ranks.run(f"{CASES}:equals", graph="torus 2x2", rounds=12)


@pytest.mark.parametrize("graph", ["alone", "strangers", "torus 2x3", "torus 3x3", "ring 5", "star 5", "any 6"])
def test_many_workers_exchange_what_a_dictionary_holds(graph):
    """Also where a device works off one call after another, and none ends before the other end has begun its own."""
    comms = threads(GRAPHS[graph])
    fine(together(len(comms), lambda rank: play(comms[rank], GRAPHS[graph], rounds=12)))
    assert (sum(comms[0].stand_in.sent) > 0) == bool(GRAPHS[graph][0])
    fine(together(len(comms), lambda rank: comms[rank].close()))


def test_a_coordinator_needs_no_device():
    """What everybody hands on, or gathers, goes over the links."""
    store, graph = dist.HashStore(), [{1}, {0}]

    def do(rank):
        if rank < 2:
            comm = join(store, rank, graph, coordinated=True)
        else:
            comm = gloo_communicator.GlooCommunicator(
                store, "m", 2, 2, [], most_bytes=MOST_BYTES, timeout_s=PATIENCE_S, coordinated=True
            )
        comm.exchange_with_root({1: [message(7)]} if rank == 2 else {2: []} if rank == 1 else {})
        if rank < 2:
            play(comm, graph, 1)
        gathers(comm, 0, leads=2)
        comm.close()

    fine(together(3, do))


def test_what_lies_on_the_host_stays_on_the_links(monkeypatch):
    monkeypatch.setattr(nccl_communicator, "is_on_device", lambda device, tensor: len(tensor) % 2 == 0)
    graph = GRAPHS["ring 3"]
    comms = threads(graph)
    fine(together(3, lambda rank: play(comms[rank], graph, rounds=12)))
    for comm in comms:
        assert comm.stand_in.sent and all(size % 2 == 0 for size in comm.stand_in.sent)
        comm.abort()


def test_posts_stay_on_the_links():
    with both() as (here, there):
        there.post({0: [message(5, 1000)]})
        here.wait(1)
        assert here.newest()[1][0].equal(message(5, 1000)) and there.stand_in.sent == []


def test_a_message_that_is_too_large_gets_no_memory():
    store, most = dist.HashStore(), (1 << 20, 1000)
    here, there = fine(together(2, lambda rank: join(store, rank, PAIR, most_bytes=most[rank])))

    def do(rank):
        try:
            (here, there)[rank].exchange({1 - rank: [message(0, 1001 - 1000 * rank)]})
        finally:
            (here, there)[rank].abort()

    found = together(2, do)
    assert isinstance(found[1], WorkerError) and found[1].worker == 0
    assert str(found[1]) == "worker 0 sends a message of size 1001; the limit is 1000"


def halted(what, **options):
    """What the first of two says of a second whose device does nothing, and how long it waited for it."""
    with both(**options) as (here, there):
        there.stand_in.goes_on.clear()
        threading.Thread(target=lambda: together(1, lambda _: there.exchange({0: [message(1)]})), daemon=True).start()
        if what == "drop":
            threading.Timer(0.5, there.abort).start()
        began = time.monotonic()
        with pytest.raises(WorkerError) as caught:
            here.exchange({1: [message(2)]})
        assert caught.value.worker == 1
        return str(caught.value), time.monotonic() - began


def test_who_sends_no_data_is_named_after_the_time_out():
    said, after_s = halted("time-out", timeout_s=1.5)
    assert said == "worker 1 did not answer within 1.5 s" and after_s < FAR_S


def test_who_is_stopped_waits_for_no_data():
    began = time.monotonic()
    said, after_s = halted("stop", stopped=lambda: time.monotonic() > began + 1.5)
    assert said.startswith("stopped after") and after_s < FAR_S


def test_who_leaves_amid_its_data_is_named_at_once():
    said, after_s = halted("drop")
    assert "worker 1 has left" in said or "worker 1 failed" in said
    assert after_s < FAR_S


def test_who_closes_has_sent_all():
    """It says so on the link while its data is still coming."""
    with both() as (here, there):
        sent = message(3, 100_000)
        here.stand_in.goes_on.clear()
        there._await = lambda missing, rest: None  # as if it had gone already
        closing = threading.Thread(target=lambda: (there.exchange({0: [sent]}), there.close()), daemon=True)
        closing.start()
        threading.Timer(0.5, here.stand_in.goes_on.set).start()
        assert here.exchange({1: []})[1][0].equal(sent)
        assert here._arrivals.has_closed(1)
        here.close()
        closing.join(FAR_S)
        assert not closing.is_alive()


def test_unreachable_workers_get_a_remedy():
    def pair(store, rank, device, timeout_s):
        raise RuntimeError("Duplicate GPU detected")

    store = dist.HashStore()
    for error in together(2, lambda rank: join(store, rank, PAIR, pair=pair)):
        assert isinstance(error, ConfigError)
        assert "worker 0" in str(error) or "worker 1" in str(error)
        assert str(error).endswith("(Duplicate GPU detected); use gloo")


@pytest.mark.parametrize("what", ["dies", "is slow"])
def test_waiting_for_a_connection_checks_for_stop_and_failed_workers(what):
    over, store = threading.Event(), dist.HashStore()

    def pair(store, rank, device, timeout_s):
        if rank == 1 and what == "dies":
            raise MemoryError
        over.wait(FAR_S)

    began = time.monotonic()
    stopped = {0: lambda: what == "is slow" and time.monotonic() > began + 0.5}
    waited = {}

    def do(rank):
        try:
            join(store, rank, PAIR, pair=pair, stopped=stopped.get(rank, over.is_set))
        finally:
            waited[rank] = time.monotonic() - began
            over.set() if rank == 0 else None

    first, _ = together(2, do)
    assert isinstance(first, WorkerError) and first.worker == 1 and waited[0] < FAR_S
    assert str(first).startswith("worker 1 has left" if what == "dies" else "stopped after")


def test_nothing_is_left_of_those_that_closed_or_dropped():
    graph, found = GRAPHS["ring 3"], []
    for ends in ["close", "abort"] * 3:
        comms = threads(graph)
        fine(together(3, lambda rank, comms=comms: play(comms[rank], graph, 1)))
        fine(together(3, lambda rank, comms=comms, ends=ends: getattr(comms[rank], ends)()))
        del comms
        gc.collect()
        time.sleep(0.1)
        found.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
    assert found[-1][0] <= found[1][0] and found[-1][1] <= found[1][1] + 8, found


def run(folder, size, what):
    """What the others tell of the last."""
    processes = [begin(program(cases_direct.__name__, folder, rank, size, what)) for rank in range(size)]
    try:
        for process in processes[:-1]:
            printed, _ = process.communicate(timeout=2 * PATIENCE_S)
            assert process.returncode == 0, printed[-6000:]
    finally:
        end(processes)
    return [json.loads((folder / f"told-{rank}").read_text()) for rank in range(size - 1)]


def test_one_that_is_killed_amid_its_data_is_named_at_once(tmp_path):
    (told,) = run(tmp_path, 2, "amid")
    assert told["worker"] == 1 and "worker 1 failed" in told["error"]
    assert told["after_s"] < FAR_S and told["drop_s"] < FAR_S


@pytest.mark.slow
@pytest.mark.parametrize("what", ["kill", "stop", "stop/flag"])
def test_who_is_gone_is_named_and_the_others_go_on(tmp_path, what):
    survived(run(tmp_path, 3, what), what)


HERE = """
import os
from pathlib import Path
from paragan.hardware import peers
from tests.distributed.cases_direct import Device
def pair(*everything):
    Path({folder!r}, str(os.getpid())).touch()
    return Device().pair(*everything)
peers.num_nccl_devices = lambda: 2
peers.accelerator_uuid = lambda device: str(os.getpid())
peers.connect_nccl_pair = pair
"""


@pytest.mark.slow
def test_a_run_past_the_host_is_the_run_over_links(tmp_path):
    """As it is started, with processes of their own: all that is of another kind is what a device has."""
    words = ["grid.shape=2x2", "grid.batches=4", "train.kimg=0.128", "train.batch=8", "train.threads=1", "workers=2"]
    words += ["grid.executor=loop", "evaluation.features=null", "penalties=[]", "augment=null", "every.sample_kimg=0"]
    (tmp_path / "sitecustomize.py").write_text(HERE.format(folder=str(tmp_path / "met")))
    (tmp_path / "met").mkdir()
    more = environment(PYTHONPATH=os.pathsep.join(map(str, (tmp_path, ROOT / "src", ROOT))))
    for transport in ("gloo", "nccl"):
        out = tmp_path / transport
        command = [sys.executable, "-m", "paragan", "train", "digits", *words, f"transport={transport}"]
        told = subprocess.run([*command, "--out", str(out)], env=more, capture_output=True, text=True, timeout=200)
        assert told.returncode == 0, told.stdout + told.stderr
        assert len(list((tmp_path / "met").iterdir())) == (2 if transport == "nccl" else 0)
    found = {path.relative_to(tmp_path / "gloo"): path for path in (tmp_path / "gloo").rglob("*.safetensors")}
    assert len(found) >= 8
    for name, path in found.items():
        assert path.read_bytes() == (tmp_path / "nccl" / name).read_bytes(), name
