"""N hosts on one machine: network namespaces on one bridge, whose links can be shaped. Needs root and `ip`."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from paragan.distributed.launch.rank_env import STORE

ROOT = Path(__file__).resolve().parents[1]
PORT = 29517
_BURST = "16kb"  # a larger bucket would let the messages of small networks through unshaped


def lacking() -> str:
    """Return why there can be no hosts here; empty if there can."""
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


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)


class ShapedHost:
    """A namespace with one interface on the bridge."""

    def __init__(self, name: str, interface: str, address: str) -> None:
        self.name = name
        self.interface = interface
        self.address = address

    def run(self, *words: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.name, *words], check=True, timeout=30, capture_output=True)

    def shape(self, rate: str, burst: str = _BURST, latency: str = "200ms") -> None:
        """Slow the link down, in the direction away from the host: `100mbit`. latency: most that a packet is queued."""
        bucket = ("tbf", "rate", rate, "burst", burst, "latency", latency)
        self.run("tc", "qdisc", "replace", "dev", self.interface, "root", *bucket)

    def start(self, words: Sequence[str], log: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start Python in this namespace."""
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": self.interface, "OMP_NUM_THREADS": "1", **more}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with open(log, "wb") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, *words],
                env=environment,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def sent_bytes(self) -> int:
        """Return the bytes that the interface has sent."""
        text = subprocess.run(
            ["ip", "netns", "exec", self.name, "cat", f"/sys/class/net/{self.interface}/statistics/tx_bytes"],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout
        return int(text)


@contextmanager
def shaped_hosts(number: int, rate: str | None) -> Iterator[list[ShapedHost]]:
    """Yield so many hosts; rate: of each link, in the direction away from the host, such as 100mbit; None: unshaped."""
    tag = f"pg{os.getpid()}"
    hub = f"{tag}hub"
    hosts = [ShapedHost(f"{tag}h{n}", f"{tag}h{n}"[-15:], f"10.78.0.{n + 1}") for n in range(number)]
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", hub, "link", "set", "br0", "up")
        for n, host in enumerate(hosts):
            _ip("netns", "add", host.name)
            port = f"port{n}"
            _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", host.interface, "netns", host.name)
            _ip("-n", hub, "link", "set", port, "master", "br0", "up")
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", host.interface)
            host.run("ip", "link", "set", host.interface, "up")
            host.run("ip", "link", "set", "lo", "up")
            if rate is not None:
                host.run("ip", "link", "set", host.interface, "gso_max_size", "8000")  # packets fit into the bucket
                host.shape(rate)
        yield hosts
    finally:
        for name in [*(host.name for host in hosts), hub]:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=30)
            for pid in pids.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30, check=False)


def run_ranks(hosts: Sequence[ShapedHost], words: Sequence[str], folder: Path, timeout_s: float) -> list[str]:
    """Run one rank on each host; return what each printed. AssertionError: one failed or took too long."""
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "store"
    logs = [folder / f"rank-{n}.log" for n in range(len(hosts))]
    ranks = []
    for n, (host, log) in enumerate(zip(hosts, logs, strict=True)):
        numbers = {"RANK": n, "WORLD_SIZE": len(hosts), "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        environment = {name: str(number) for name, number in numbers.items()} | {STORE: str(store)}
        ranks.append(host.start(words, log, environment))
    return _finish(ranks, logs, timeout_s)


def run_torchrun(hosts: Sequence[ShapedHost], words: Sequence[str], folder: Path, timeout_s: float) -> list[str]:
    """Run an agent of torchrun with one rank on each host; the rendezvous is on the first. As `run_ranks`."""
    logs = [folder / f"host-{n}.log" for n in range(len(hosts))]
    agents = []
    for n, (host, log) in enumerate(zip(hosts, logs, strict=True)):
        size = (f"--nnodes={len(hosts)}", "--nproc-per-node=1", f"--node-rank={n}")
        rendezvous = (f"--master-addr={hosts[0].address}", f"--master-port={PORT}", "--rdzv-backend=static")
        agents.append(host.start(["-m", "torch.distributed.run", *size, *rendezvous, *words], log, {}))
    return _finish(agents, logs, timeout_s)


def _finish(processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], timeout_s: float) -> list[str]:
    """Wait for processes, and end those that are left; return their logs. AssertionError: one failed or is late."""
    deadline = time.monotonic() + timeout_s
    try:
        while any(one.poll() is None for one in processes) and time.monotonic() < deadline:
            time.sleep(0.1)
        codes = [one.poll() for one in processes]
    finally:
        for one in processes:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, 9)
    texts = [log.read_text(errors="replace") for log in logs]
    failed = [text[-3000:] for text, code in zip(texts, codes, strict=True) if code != 0]
    assert not failed, "\n--- next\n".join([f"exit codes {codes}", *failed])
    return texts
