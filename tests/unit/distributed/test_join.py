"""Ranks: which one this is, how they meet, and why one ends where several run."""

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from paragan.core import dist as dist_world
from paragan.core.dist import World
from paragan.core.errors import ConfigError, PeerFailedError, RankError, StoppedError, outcome
from paragan.distributed.launch import failure, join, rank_env, rendezvous
from paragan.distributed.launch.rank_env import RankEnv
from paragan.hardware import device
from tests.processes import listeners


def rank(number, size=2, attempt=0, run="x"):
    return RankEnv(rank=number, size=size, local_rank=number, local_size=size, attempt=attempt, run_id=run)


# how they meet


def meet(store, size, timeout_s=20.0, present=None):
    """Every rank that is present in a thread of its own; the stores of the ranks, or what they raised."""
    results = {}

    def run(number):
        try:
            wait = rendezvous._Wait(timeout_s, lambda: False)
            results[number] = rendezvous._rendezvous(store, rank(number, size), wait)
        except RankError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in (range(size) if present is None else present)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_a_later_round_reads_nothing_of_the_dead():
    """torchrun hands restarted ranks the store of those before: the gloo restart trap."""
    store = dist.HashStore()
    for number, of_rank in meet(store, 3).items():
        of_rank.set(f"address/{number}", "of the dead")
    second = meet(store, 3)
    assert not any(of_rank.check([f"address/{n}"]) for of_rank in second.values() for n in range(3))
    second[0].set("key", "value")
    assert all(of_rank.get("key") == b"value" for of_rank in second.values())


def test_who_does_not_come_is_named():
    store = dist.HashStore()
    meet(store, 3)  # the hello of a dead rank 2 is still there
    errors = meet(store, 3, 0.5, present=(0, 1))
    assert len(errors) == 2
    assert all("rank 2 failed or did not join within 0.5 s" in str(error) for error in errors.values())


def test_a_request_to_stop_ends_the_wait():
    with pytest.raises(StoppedError) as stopped:
        rendezvous._rendezvous(dist.HashStore(), rank(1), rendezvous._Wait(1e6, lambda: True))
    assert outcome(stopped.value) == (85, "stopped before the first step")  # a scheduler starts it again


@pytest.mark.parametrize("store_after_s", [0.0, 30.0, 59.0])
def test_wait_for_the_store_and_for_the_ranks_there_is_the_time_out_together(monkeypatch, store_after_s):
    clock = SimpleNamespace(now=0.0)

    def sleep(_):
        clock.now += 1.0

    fake_time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(rendezvous, "time", fake_time)
    monkeypatch.setattr(rendezvous, "_is_served", lambda *_: clock.now >= store_after_s)
    monkeypatch.setattr(rendezvous.dist, "TCPStore", lambda *_, **__: dist.HashStore())  # of no rank 0
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(RankError, match=r"rank 0 .* within 60 s"):
        rendezvous.meet(rank(1), 60.0, lambda: False)
    assert 60 < clock.now <= 62


@pytest.mark.parametrize(("is_stopped", "code"), [(True, 85), (False, 75)])
def test_rank_without_a_rank_0_to_connect_to_ends_with_a_code_that_a_scheduler_understands(
    is_stopped, code, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))  # of no server
    with pytest.raises((StoppedError, RankError)) as ended:
        join.join(
            RankEnv(rank=1, size=2, local_rank=0, local_size=1),
            torch.device("cpu"),
            60 if is_stopped else 0.1,
            lambda: is_stopped,
        )
    assert outcome(ended.value)[0] == code
    assert is_stopped or "rank 0 failed or did not join within 0.1 s" in str(ended.value)


def test_world_of_one_process_has_a_group_on_request():
    assert join.join(None, torch.device("cpu"), 5) == World()
    before = listeners([os.getpid()])
    world = join.join(None, torch.device("cpu"), 5, alone_group=True)
    try:
        assert (world.rank, world.size, dist.get_world_size(world.group)) == (0, 1, 1)
        values = torch.ones(2)
        dist.all_reduce(values, group=world.control)
        assert values.tolist() == [1, 1]
        assert listeners([os.getpid()]) - before <= {"127.0.0.1"}
    finally:
        join.destroy_groups(world)
    assert not dist.is_initialized()
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_ranks_on_one_host_are_confined_to_the_loopback_interface_unless_another_is_named(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    for placed, expected in (
        (RankEnv(rank=0, size=4, local_rank=0, local_size=2), None),
        (RankEnv(rank=0, size=2, local_rank=0, local_size=2), "=lo"),
    ):
        monkeypatch.setattr(rendezvous, "_torchrun_store", lambda *given: dist.HashStore())
        with pytest.raises(RankError):
            join.join(placed, torch.device("cpu"), 0.01)
        assert os.environ.get("NCCL_SOCKET_IFNAME") == expected
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_local_ranks_meet_in_a_file_without_a_name(tmp_path, monkeypatch):
    _, path = rank_env.create_store_file()  # stays open: torch's store opens it once more as it is deleted
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mine, theirs = (dist.FileStore(path, 2) for _ in range(2))
    theirs.set_timeout(timedelta(seconds=0.5))
    mine.set("key", "value")
    assert theirs.get("key") == b"value"
    with pytest.raises(RuntimeError) as late:
        theirs.get("absent")
    assert failure.is_collective_failure(late.value)
    assert not os.path.exists(os.readlink(path)) and not list(tmp_path.iterdir())


def test_a_store_listens_on_the_address_that_it_is_given():
    before = listeners([os.getpid()])
    store = dist_world.serve_store("localhost", 0, timedelta(seconds=5))
    store.set("key", "value")
    assert listeners([os.getpid()]) - before <= {"127.0.0.1", "::1"}
    other = dist.TCPStore("127.0.0.1", store.port, None, False, timedelta(seconds=5), wait_for_workers=False)
    assert other.get("key") == b"value"


@pytest.mark.parametrize(
    ("host", "problem"), [("192.0.2.1", "names no interface of this host"), ("localhost", "is 127.0.0.1 here")]
)
def test_rank_0_of_several_hosts_serves_them_by_an_address_that_is_not_its_own(host, problem, capfd):
    """192.0.2.0/24 belongs to no host. What other hosts cannot reach is not what they were given."""
    place = RankEnv(rank=0, size=4, local_rank=0, local_size=2)
    if host == "localhost":
        rendezvous._serve_store(place, host, 0, timedelta(seconds=5))
    else:
        with pytest.raises((RuntimeError, dist.DistError)):  # torch's own client of the store finds no way either
            rendezvous._serve_store(place, host, 0, timedelta(seconds=0.2))
    assert capfd.readouterr().err.startswith(f"warning: MASTER_ADDR={host} {problem}")


def test_host_name_of_debian_is_no_address_for_other_hosts(monkeypatch, capsys):
    monkeypatch.setattr(rendezvous.socket, "gethostbyname", lambda host: "127.0.1.1")
    monkeypatch.setattr(rendezvous.dist, "TCPStore", lambda *_, **__: dist.HashStore())
    rendezvous._serve_store(RankEnv(rank=0, size=2, local_rank=0, local_size=1), "node1", 1, timedelta(seconds=1))
    assert "MASTER_ADDR=node1 is 127.0.1.1 here, which other hosts cannot reach" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 3])
def test_each_local_rank_gets_a_device_of_its_own(monkeypatch, count):
    chosen = []
    kind = SimpleNamespace(type="meta")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: kind)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    if count == 1:
        with pytest.raises(ConfigError, match="3 requested, but this host has 1 meta devices"):
            device.select_device(None, 2, 3)
    else:
        assert device.select_device(None, 2, 3) == torch.device("meta", 2)
        assert chosen == [2]


# why a rank ends


@pytest.fixture
def pair(monkeypatch):
    """Two ranks of this process, with the store where reasons are left; rank 1's process can be another's."""
    monkeypatch.setattr(failure, "LOOK_S", 0.2)
    store = dist.HashStore()
    for number in range(2):
        store.set(f"here/{number}", json.dumps([socket.gethostname(), os.getpid()]))
    return [World(rank=number, size=2, store=store) for number in range(2)]


BROKEN = RuntimeError("[../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1")


def test_the_first_to_fail_is_heard_and_the_others_follow(pair):
    own = ConfigError("g.micro_batches: found 0")
    assert failure.resolve_failure(pair[1], own) is own
    assert failure.resolve_failure(pair[1], own) is own  # told again on the way out
    for late in (BROKEN, ValueError("rank 0 came to grief, too")):
        follower = failure.resolve_failure(pair[0], late)
        assert isinstance(follower, PeerFailedError)
        assert outcome(follower) == (2, "rank 0 stopped because rank 1 failed: g.micro_batches: found 0")
        assert failure.resolve_failure(pair[0], follower) is follower


def test_bug_is_reported_by_its_type(pair):
    failure.resolve_failure(pair[1], KeyError("name"))
    assert "KeyError: 'name'" in str(failure.resolve_failure(pair[0], BROKEN))
    assert failure.resolve_failure(pair[0], BROKEN).exit_code == 1


@pytest.mark.parametrize("value", ["[]", "{}", '{"rank": [], "code": 1, "reason": 1}', "x", "[" * 100_000])
def test_a_reason_that_no_rank_has_written_ends_in_one_line(pair, value):
    """Under torchrun others on the network can write into the store."""
    pair[1].store.set("failed", value)
    error = failure.resolve_failure(pair[0], BROKEN)
    assert isinstance(error, RankError) and "\n" not in str(error)
    assert "store" not in str(error)  # its process has not ended


@pytest.mark.parametrize("pid", ["[]", "7", "-1", str(10**30), "Infinity"])
def test_a_process_that_no_rank_has_registered_ends_in_one_line(pair, pid):
    pair[0].store.set("here/1", f'["{socket.gethostname()}", {pid}]')
    assert failure.resolve_failure(pair[0], BROKEN).exit_code == 75


def test_a_rank_that_is_gone_is_named(pair):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    pair[0].store.set("here/1", json.dumps([socket.gethostname(), gone.pid]))
    error = failure.resolve_failure(pair[0], BROKEN)
    assert isinstance(error, RankError) and error.exit_code == 75
    assert str(error).startswith("rank 1 failed")
    assert "the last checkpoint is intact; run the same command to resume" in str(error)


def test_a_rank_that_does_not_answer_is_not_waited_for(pair):
    error = failure.resolve_failure(pair[0], RuntimeError("Timed out waiting 2000ms for recv operation to complete"))
    assert "another rank failed or did not answer in time" in str(error)


def test_what_a_layer_made_of_a_broken_collective_is_understood(pair):
    error = RankError("norm: not every rank joined in")
    error.__cause__ = BROKEN
    for _ in range(2):  # once where the session ends, once where the command does
        assert failure.resolve_failure(pair[0], error) is error  # nothing better is known
    failure.resolve_failure(pair[1], ConfigError("d_loss: odd"))
    error = RankError("norm: not every rank joined in")
    error.__cause__ = BROKEN
    assert "rank 0" in str(failure.resolve_failure(pair[1], error))


def test_alone_an_error_is_what_it_is():
    assert failure.resolve_failure(World(), BROKEN) is BROKEN
    assert not failure.is_collective_failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_the_pretended_second_rank_of_a_profile_always_agrees():
    with join.lone_rank(torch.device("cpu")) as world:
        assert (world.size, world.gather("x")) == (2, ["x", "x"])
        (one, other) = world.gather_tensors(torch.tensor([1, 2]))
        assert one.equal(other)
        assert world.share(7) == (0, 7)
