"""Division of a player's ranks into groups that share one network, and copies of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class RankGroups:
    """The groups that a rank is in.

    world: all ranks of the player. group: consecutive ranks that have one network together; the
    rank in a pipeline is its stage. copies: the ranks of equal number in all groups.
    """

    world: World
    group: World
    copies: World

    def __deepcopy__(self, memo: dict[int, Any]) -> RankGroups:
        """Return itself: process groups cannot be copied, and copied networks use the same ones."""
        return self


def rank_groups(world: World, size: int | None, setting: str) -> RankGroups:
    """Return the division into groups of `size` ranks (None: all). Collective on first use.

    Raises `ConfigError` if the number of ranks is no multiple. setting: that has the size.
    """
    count = world.size if size is None else size
    if world.size % count:
        raise ConfigError(
            f"{setting}={count} does not divide {world.size} ranks; pass a divisor, or another number of devices"
        )
    key = ("groups", count)
    # Players of one size share the groups. All ranks have the key or none has it, since all wait for a new group.
    if key not in world.meshes:
        first = world.rank // count * count
        world.meshes[key] = (
            _part_of(world, list(range(first, first + count))),
            _part_of(world, list(range(world.rank % count, world.size, count))),
        )
    return RankGroups(world, *world.meshes[key])


def _part_of(world: World, ranks: list[int]) -> World:
    """Return some ranks of a world, this one among them, as a world."""
    if world.group is None:
        return world
    global_ranks = dist.get_process_group_ranks(world.group)
    members = [global_ranks[rank] for rank in ranks]
    timeout = world.group._get_backend(world.device).options._timeout  # else torch waits for half an hour
    group = _new_group(members, timeout, dist.get_backend(world.group))
    control = group if world.control is world.group else _new_group(members, timeout, "gloo")
    return replace(world, rank=ranks.index(world.rank), size=len(ranks), group=group, control=control, meshes={})


def _new_group(members: list[int], timeout: timedelta, backend: str) -> dist.ProcessGroup:
    # local: else every rank of the run would have to call this for every group
    return dist.new_group(members, timeout, backend, use_local_synchronization=True)
