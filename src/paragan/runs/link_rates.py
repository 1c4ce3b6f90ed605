"""Measured bandwidth between ranks, compared with the network that a run was planned for."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.traffic import Collective
from paragan.scaling.cluster import Interconnect, find_interconnect

_NUM_BYTES = 1 << 22
_ROUNDS = 4  # the first one also connects the ranks
_SLOW = 0.5  # of the assumed bandwidth
_GBIT = 1e9 / 8


@dataclass(frozen=True)
class MeasuredLink:
    """Link from a rank to the next one. assumed_bytes_per_s: of the network, inside or between hosts."""

    source: int
    target: int
    bytes_per_s: float
    assumed_bytes_per_s: float

    @property
    def is_slow(self) -> bool:
        """Whether the link has less than half of the assumed bandwidth."""
        return self.bytes_per_s < _SLOW * self.assumed_bytes_per_s

    def __str__(self) -> str:
        rates = f"{self.bytes_per_s / _GBIT:.3g} Gbit/s, the plan assumes {self.assumed_bytes_per_s / _GBIT:.3g}"
        return f"link rank {self.source} - {self.target}: {rates}"


def link_messages(network: str | None, world: World) -> list[str]:
    """Return a warning for each slow link, or the slowest link if none is. Collective.

    network: a preset of `plan --network`; None: nothing is measured. Raises `ConfigError` for
    another name.
    """
    if network is None:
        return []
    assumed = find_interconnect(network)
    if world.size == 1:
        return []
    links = measure_links(assumed, world)
    slow = [f"warning: {link} ({network})" for link in links if link.is_slow]
    slowest = min(links, key=lambda link: link.bytes_per_s / link.assumed_bytes_per_s)
    return slow or [f"{slowest} ({network}); no link is slower relative to the plan"]


def measure_links(assumed: Interconnect, world: World) -> list[MeasuredLink]:
    """Measure the links of a ring: each rank sends to the next one, all at the same time. Collective."""
    seconds = min([_exchange(world) for _ in range(_ROUNDS)][1:])
    found = world.gather([socket.gethostname(), seconds])
    return [_link(rank, found, assumed) for rank in range(world.size)]


def _link(rank: int, found: Sequence[tuple[str, float]], assumed: Interconnect) -> MeasuredLink:
    target = (rank + 1) % len(found)
    is_inside = found[rank][0] == found[target][0]
    link = assumed.inside if is_inside else assumed.between
    return MeasuredLink(rank, target, _NUM_BYTES / found[target][1], link.bytes_per_s)


def _exchange(world: World) -> float:
    """Return the seconds from the meeting of all ranks to the end of this rank's messages."""
    sent = torch.ones(_NUM_BYTES // 4, device=world.device)
    received = torch.empty_like(sent)
    world.count("control", sent, collective=Collective.LINK)
    world.barrier()
    began = time.monotonic()
    to = dist.P2POp(dist.isend, sent, group=world.group, group_peer=(world.rank + 1) % world.size)
    source = dist.P2POp(dist.irecv, received, group=world.group, group_peer=(world.rank - 1) % world.size)
    for work in dist.batch_isend_irecv([to, source]):
        work.wait()
    if world.device.type != "cpu":
        torch.accelerator.synchronize()
    return time.monotonic() - began
