"""Who sits where: all ranks hold both players, or some hold G and the others D, or one holds both for all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.types import Side


@dataclass(frozen=True)
class Roles:
    """own: the ranks of `world` that share a batch with this one; sides: the players that sit here.

    ranks: of either side, in `world`. patient: all ranks, to wait in while some of them work for long. timeout_s: of
    any other wait.
    """

    world: World
    batch_world: World
    ranks: Mapping[Side, Sequence[int]] = field(default_factory=dict)
    long_wait_group: dist.ProcessGroup | None = None
    timeout_s: float = 300.0

    @property
    def is_split(self) -> bool:
        """Whether some rank lacks a player."""
        return bool(self.ranks)

    @property
    def has_server(self) -> bool:
        """Whether one rank holds both, and the others play their turns on copies."""
        return self.is_split and self.ranks[Side.G] == self.ranks[Side.D]

    @property
    def sides(self) -> tuple[Side, ...]:
        if not self.is_split:
            return tuple(Side)
        return tuple(side for side in Side if self.world.rank in self.ranks[side])

    @property
    def trained_sides(self) -> tuple[Side, ...]:
        """Whose turns are played here: of a server's players by everybody else."""
        return tuple(side for side in Side if (side in self.sides) != self.has_server)

    def gather_merged(self, mine: Mapping[str, Any]) -> dict[str, Any]:
        """What the ranks of both roles know (JSON), one of each; all ranks have to ask."""
        if not self.is_split:
            return dict(mine)
        return {name: value for theirs in reversed(self.world.gather(dict(mine))) for name, value in theirs.items()}

    def wait_for_all(self) -> None:
        """Until every rank has come, also those that were scoring meanwhile."""
        if self.long_wait_group is not None:
            dist.barrier(self.long_wait_group)


_PATIENCE_S = 3600.0


def colocated_roles(world: World, timeout_s: float = 300.0) -> Roles:
    """Every rank holds both players."""
    return Roles(world, world, timeout_s=timeout_s)


def split_roles(world: World, num_g: int, timeout_s: float) -> Roles:
    """The first `num_g` ranks hold G, the others D; either group a world of its own. Collective."""
    ranks = {Side.G: range(num_g), Side.D: range(num_g, world.size)}
    return _split(world, num_g, ranks, timeout_s)


def server_roles(world: World, timeout_s: float) -> Roles:
    """Rank 0 holds both players; the others, a world of their own, play their turns on copies. Collective."""
    return _split(world, 1, {side: range(1) for side in Side}, timeout_s)


def _split(world: World, first: int, ranks: Mapping[Side, Sequence[int]], timeout_s: float) -> Roles:
    """The first ranks are one world, the others another."""
    hosts = world.gather(world.rank - world.local_rank)  # a host's first rank is its name
    parts = (range(first), range(first, world.size))
    own = [_subworld(world, part, hosts, timedelta(seconds=timeout_s)) for part in parts]
    patient = dist.new_group(backend="gloo", timeout=timedelta(seconds=max(timeout_s, _PATIENCE_S)))
    return Roles(world, own[world.rank >= first], ranks, patient, timeout_s)


def _subworld(world: World, ranks: Sequence[int], hosts: Sequence[int], patience: timedelta) -> World:
    """All ranks of the world come here, also those that are not among `ranks`: torch wants them all."""
    group = dist.new_group(list(ranks), timeout=patience, backend=dist.get_backend(world.group))
    control = dist.new_group(list(ranks), timeout=patience, backend="gloo")
    if world.rank not in ranks:
        return world
    beside = [rank for rank in ranks if hosts[rank] == hosts[world.rank]]
    return replace(
        world,
        rank=ranks.index(world.rank),
        size=len(ranks),
        local_rank=beside.index(world.rank),
        local_size=len(beside),
        group=group if len(ranks) > 1 else None,
        control=control if len(ranks) > 1 else None,
        meshes={},
    )
