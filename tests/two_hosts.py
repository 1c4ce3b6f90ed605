"""Two hosts on one machine: two network namespaces joined by a pair of virtual cables. Needs root and `ip`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PORT = 29517


def lacking() -> str:
    """Why there can be no two hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "`ip` (iproute2) is not installed"
    name = f"pg{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], timeout=30, check=False)
    return ""


class Host:
    def __init__(self, name: str, interface: str, address: str) -> None:
        self.name, self.interface, self.address = name, interface, address

    def run(self, *words: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.name, *words], check=True, timeout=30, capture_output=True)

    def shape(self, rate: str) -> None:
        """Slow its cable down, in the direction away from it: `100mbit`."""
        self.run(
            "tc",
            "qdisc",
            "replace",
            "dev",
            self.interface,
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "128kb",
            "latency",
            "100ms",
        )

    def torchrun(self, words: Sequence[str], first: bool, log: Path, port: int = PORT) -> subprocess.Popen[bytes]:
        """One agent of two with one rank. The rendezvous lies on the first host."""
        rendezvous = ["--master-addr=10.77.0.1", f"--master-port={port}", f"--node-rank={int(not first)}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *rendezvous]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": self.interface, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with open(log, "wb") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *torchrun, "--rdzv-backend=static", *words],
                env=environment,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Both are gone afterwards, with all that ran on them."""
    tag = f"pg{os.getpid()}"
    hosts = Host(f"{tag}a", f"{tag}a0"[:15], "10.77.0.1"), Host(f"{tag}b", f"{tag}b0"[:15], "10.77.0.2")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)

    try:
        for host in hosts:
            ip("netns", "add", host.name)
        ip("link", "add", hosts[0].interface, "type", "veth", "peer", "name", hosts[1].interface)
        for host in hosts:
            ip("link", "set", host.interface, "netns", host.name)
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", host.interface)
            host.run("ip", "link", "set", host.interface, "up")
            host.run("ip", "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            told = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, timeout=30)
            for pid in told.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, timeout=30, check=False)


def run_on_both(hosts: tuple[Host, Host], words: Sequence[str], folder: Path, timeout_s: float) -> str:
    """torchrun with these words on both; what the first said. AssertionError: it failed or took too long."""
    logs = folder / "host-a.log", folder / "host-b.log"
    agents = [host.torchrun(words, host is hosts[0], log) for host, log in zip(hosts, logs, strict=True)]
    deadline = time.monotonic() + timeout_s
    try:
        while any(agent.poll() is None for agent in agents) and time.monotonic() < deadline:
            time.sleep(0.2)
        codes = [agent.poll() for agent in agents]
    finally:
        for agent in agents:
            with suppress(ProcessLookupError):
                os.killpg(agent.pid, 9)
    said = [log.read_text(errors="replace") for log in logs]
    assert codes == [0, 0], f"exit codes {codes}\n{said[0][-3000:]}\n--- second host\n{said[1][-3000:]}"
    return said[0]
