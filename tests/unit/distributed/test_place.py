"""Which rank a process is, by its environment, and what it can see of the processes that started it."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paragan.core.errors import ConfigError
from paragan.distributed.launch import rank_env
from paragan.distributed.launch.rank_env import RankEnv
from tests.processes import wait_for

ENVIRONMENT = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1",
    "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip


def test_rank_and_size_come_from_the_environment():
    place = rank_env.from_environment(ENVIRONMENT)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 4, 1, 2)
    assert (place.attempt, place.run_id, place.launcher_pid) == (1, "x", os.getppid())
    assert place.store_path is None and place.lock_fd is None and not place.is_orphaned()


def test_a_process_alone_has_no_place():
    """Clusters set RANK and WORLD_SIZE for whatever starts in their containers."""
    assert rank_env.from_environment({"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "a"}) is None


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("WORLD_SIZE", None, "WORLD_SIZE=''"),
        ("RANK", "-1", "RANK='-1'"),
        ("MASTER_ADDR", None, "MASTER_ADDR=''"),
        ("RANK", "4", "rank 4 of 4"),
        ("LOCAL_WORLD_SIZE", "5", "on this host 1 of 5"),
    ],
)
def test_half_an_environment_is_refused(key, value, told):
    env = {k: v for k, v in (ENVIRONMENT | {key: value}).items() if v is not None}
    with pytest.raises(ConfigError, match=re.escape(told)):
        rank_env.from_environment(env)


def test_a_rank_whose_launcher_is_gone_is_an_orphan():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    assert not rank_env.from_environment(ENVIRONMENT | {rank_env.LAUNCHER: str(os.getppid())}).is_orphaned()
    assert rank_env.from_environment(ENVIRONMENT | {rank_env.LAUNCHER: str(gone.pid)}).is_orphaned()
    assert replace(rank_env.from_environment(ENVIRONMENT), launcher_pid=1 << 30).is_orphaned()


def test_what_a_local_rank_is_given_is_what_it_reads(monkeypatch):
    """Whatever a cluster or the user has set, sockets of ranks on one host are confined to the loopback interface."""
    outside = {"RANK": "7", "WORLD_SIZE": "8", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    given = outside | rank_env.rank_environment(2, 3, "/proc/self/fd/9") | {rank_env.LAUNCHER: "5", rank_env.LOCK: "4"}
    assert rank_env.from_environment(given) == RankEnv(
        rank=2, size=3, local_rank=2, local_size=3, launcher_pid=5, store_path="/proc/self/fd/9", lock_fd=4
    )
    assert (given["GLOO_SOCKET_IFNAME"], given["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
    monkeypatch.setattr(rank_env.socket, "if_nameindex", lambda: [(1, "eth0")])
    assert rank_env.loopback_environment() == {}


@pytest.mark.parametrize(
    ("words", "env", "found"),
    [
        (["--rdzv-backend=c10d"], {}, True),
        (["--rdzv_backend", "c10d"], {}, True),
        (["--standalone"], {}, True),
        (["--rdzv-backend=static", "--nnodes=2"], {}, False),
        ([], {"PET_RDZV_BACKEND": "c10d"}, True),
    ],
)
def test_a_rendezvous_that_unpickles_is_recognised(words, env, found, started):
    agent = subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE)
    started.append(agent)
    wait_for(lambda: b"input()" in Path(f"/proc/{agent.pid}/cmdline").read_bytes())
    assert rank_env.rendezvous_is_dynamic(agent.pid, env) is found
    assert not rank_env.rendezvous_is_dynamic(1 << 30, {})
