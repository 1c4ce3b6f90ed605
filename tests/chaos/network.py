"""Two hosts on one machine and a wire between them that delays, drops or cuts: for tests, as root on Linux.

Kernels without `netem` are common, so packets travel through a process: each host is a network
namespace with a TUN device, whose packets `relay` carries to the other.
"""

import ctypes
import fcntl
import heapq
import json
import os
import select
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x0001 | 0x1000
_CLONE_NEWNET = 0x40000000
_PACKET_BYTES = 1 << 16


@dataclass(frozen=True)
class Host:
    """A network namespace, its address, and its device."""

    namespace: str
    device: str
    address: str

    def enter(self) -> None:
        """Move this process into the namespace."""
        handle = os.open(f"/var/run/netns/{self.namespace}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(handle)


@dataclass
class Conditions:
    """What the wire does with a packet. until: monotonic seconds, after which it does nothing."""

    delay_s: float = 0.0
    loss: float = 0.0
    until: float = 0.0


def lacking() -> str:
    """Return why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "`ip` (iproute2) is not installed"
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"{_TUN}: {error.strerror}"
    return ""


@contextmanager
def two_hosts(orders: Path) -> Iterator[list[Host]]:
    """Yield two hosts. orders: a pipe with a name, made here; `change_wire` writes to it."""
    tag = f"pc{os.getpid()}"
    hosts = [Host(f"{tag}-{n}", f"{tag}-{n}", f"10.79.0.{n + 1}") for n in range(2)]
    devices = []
    os.mkfifo(orders)
    relaying = 0
    try:
        for host in hosts:
            devices.append(_device(host))
        relaying = os.fork()
        if relaying == 0:
            with suppress(BaseException):
                relay(devices, os.open(orders, os.O_RDWR | os.O_NONBLOCK))
            os._exit(1)
        yield hosts
    finally:
        for device in devices:
            os.close(device)
        if relaying:
            os.kill(relaying, 9)
            os.waitpid(relaying, 0)
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, timeout=30, check=False)
        orders.unlink()


def _device(host: Host) -> int:
    """Make the namespace and its device; return the descriptor at which its packets arrive."""
    _ip("netns", "add", host.namespace)
    device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", host.device.encode(), _IFF_TUN_NO_PI))
    _ip("link", "set", host.device, "netns", host.namespace)
    _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.device)
    for name in (host.device, "lo"):
        _ip("-n", host.namespace, "link", "set", name, "up")
    return device


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)


def relay(devices: list[int], orders: int) -> None:
    """Carry packets both ways for ever, under the newest conditions."""
    draws, conditions = Random(1), Conditions()
    flying: list[tuple[float, int, int, bytes]] = []
    for number in range(1 << 62):
        wait_s = max(0.0, flying[0][0] - time.monotonic()) if flying else 1.0
        ready, _, _ = select.select([*devices, orders], [], [], wait_s)
        now = time.monotonic()
        if orders in ready:
            text = os.read(orders, 1 << 12).decode().splitlines()[-1]
            conditions = Conditions(**json.loads(text))
        if now > conditions.until:
            conditions = Conditions()
        for device in set(ready) & set(devices):
            packet = os.read(device, _PACKET_BYTES)
            if draws.random() >= conditions.loss:
                delay_s = conditions.delay_s * (0.5 + draws.random())
                heapq.heappush(flying, (now + delay_s, number, devices[1 - devices.index(device)], packet))
        while flying and flying[0][0] <= now:
            _, _, device, packet = heapq.heappop(flying)
            with suppress(OSError):  # its queue is full, as a switch's may be
                os.write(device, packet)


def change_wire(orders: Path, seconds: float, delay_s: float = 0.0, loss: float = 0.0) -> None:
    """Set the conditions of the wire for some seconds."""
    text = json.dumps({"delay_s": delay_s, "loss": loss, "until": time.monotonic() + seconds})
    with open(orders, "w") as pipe:
        pipe.write(text + "\n")
