"""HSDP (hybrid sharding): sharded over the ranks of a host, replicated across hosts.

Zhao et al. 2023, section 3.2.2.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count
from paragan.parallel.base.fsdp import Sharded


@dataclass(frozen=True)
class Options:
    """Hybrid sharding: sharded over the ranks of a host, replicated across hosts."""

    host: Count | None = None
    """Ranks per host; null: detected."""


class Strategy(Sharded):
    """HSDP (hybrid sharding), by FSDP2."""

    name = "hsdp"
    needs_hosts = True

    def mesh(self, world: World) -> DeviceMesh:
        # One mesh for both players, since each has connections of its own. It is missing on all ranks or on none.
        if self.options not in world.meshes:
            world.meshes[self.options] = self._new_mesh(world)
        return cast(DeviceMesh, world.meshes[self.options])

    def _new_mesh(self, world: World) -> DeviceMesh:
        ranks_per_host = self.options.host or world.local_size
        sizes = world.gather(ranks_per_host)
        if min(sizes) < max(sizes):
            raise ConfigError(
                f"hsdp: hosts have from {min(sizes)} to {max(sizes)} ranks; set hsdp.host, the ranks of each group"
            )
        if world.size % ranks_per_host:
            raise ConfigError(f"hsdp.host={ranks_per_host} does not divide {world.size} ranks; pass a divisor")
        if world.size < dist.get_world_size():
            raise ConfigError(
                f"strategy hsdp on {world.size} of {dist.get_world_size()} ranks is not supported: torch creates its "
                "groups on all ranks at once; use zero3 where the players are on separate ranks"
            )
        ranks = torch.arange(world.size).view(-1, ranks_per_host)
        mesh = DeviceMesh(world.device.type, ranks, mesh_dim_names=("replicate", "shard"))
        assert world.group is not None
        # torch's default time-out is half an hour
        timeout = world.group._get_backend(world.device).options._timeout
        for name in ("replicate", "shard"):
            distributed_c10d._set_pg_timeout(timeout, mesh[name].get_group())
        return mesh
