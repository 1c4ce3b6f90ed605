"""A Ray cluster of this machine: a head with two cores for jobs."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.processes import guarded, wait_for

START = (
    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"),
    *("--disable-usage-stats", "--object-store-memory=80000000", "--node-ip-address=127.0.0.1"),
)


def why_absent() -> str:
    """Why no cluster can be started here; empty if one can."""
    names = ("ray", "aiohttp_cors")  # the second is of ray[default], which has the dashboard
    return next((f"no {name}; pip install 'paragan[ray]'" for name in names if not importlib.util.find_spec(name)), "")


@dataclass(frozen=True)
class RayCluster:
    """A running cluster. address: of the dashboard, which takes jobs."""

    address: str

    def stop(self, job: str) -> None:
        """Stop a job, as `ray job stop` does."""
        urlopen(Request(f"{self.address}/api/jobs/{job}/stop", method="POST"), timeout=60).close()

    def status(self, job: str) -> str:
        """Status of a job, such as RUNNING."""
        with urlopen(f"{self.address}/api/jobs/{job}", timeout=60) as reply:
            return json.load(reply)["status"]


@contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """A cluster of a head alone, which ends with the block, or with this process."""
    port, dashboard = _free_ports()
    cluster = RayCluster(f"http://127.0.0.1:{dashboard}")
    words = [f"--port={port}", f"--dashboard-port={dashboard}", f"--temp-dir={folder}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "RAY_worker_niceness": "0"}  # 15: starved by other tests
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with guarded([*START, *words], env=environment, **silent):
        wait_for(lambda: _answers(f"{cluster.address}/api/version"), seconds=90)
        yield cluster


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as reply:
            return reply.status == 200
    except (URLError, OSError):
        return False


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
