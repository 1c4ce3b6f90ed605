"""Division of a player's ranks into pipelines, and into the ranks that have the same stage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.parallel._row_moves import Messages


@dataclass(frozen=True)
class StageRanks:
    """Ranks of one pipeline, `stages` consecutive ones, and the copies of this rank's stage.

    world: all ranks of the player. pipeline: those of this rank's pipeline; its rank there is its
    stage. copies: the ranks of all pipelines with this stage.
    """

    world: World
    pipeline: World
    copies: World
    messages: Messages = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", Messages(self.pipeline))

    def __deepcopy__(self, memo: dict[int, Any]) -> StageRanks:
        """Return itself: process groups cannot be copied, and copied networks use the same ones."""
        return self


def stage_ranks(world: World, stages: int | None, setting: str = "pipeline.stages") -> StageRanks:
    """Return the division into groups of `stages` ranks (None: all). Collective on first use.

    Raises `ConfigError` if the number of ranks is no multiple. setting: name of `stages` there.
    """
    count = world.size if stages is None else stages
    if world.size % count:
        raise ConfigError(
            f"{setting}={count} does not divide {world.size} ranks; pass a divisor, or another number of devices"
        )
    key = ("pipeline", count)
    if key not in world.meshes:  # on all ranks or on none
        first = world.rank // count * count
        world.meshes[key] = (
            _part_of(world, list(range(first, first + count))),
            _part_of(world, list(range(world.rank % count, world.size, count))),
        )
    return StageRanks(world, *world.meshes[key])


def _part_of(world: World, ranks: list[int]) -> World:
    """Return some ranks of a world, this one among them, as a world."""
    if world.group is None:
        return world
    everyone = dist.get_process_group_ranks(world.group)
    members = [everyone[rank] for rank in ranks]
    timeout = world.group._get_backend(world.device).options._timeout  # else torch waits for half an hour
    group = _new_group(members, timeout, dist.get_backend(world.group))
    control = group if world.control is world.group else _new_group(members, timeout, "gloo")
    return replace(world, rank=ranks.index(world.rank), size=len(ranks), group=group, control=control, meshes={})


def _new_group(members: list[int], timeout: timedelta, backend: str) -> dist.ProcessGroup:
    return dist.new_group(members, timeout, backend, use_local_synchronization=True)
