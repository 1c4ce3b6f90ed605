"""Assignment of players to ranks: colocated, a group for each player, or one server for both."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.errors import DivergedError
from paragan.core.phases import Phase, phase
from paragan.core.types import Side


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of the ranks of `world`, and of this one.

    batch_world: the ranks that share a batch with this one. ranks: of each side, in `world`; empty if every rank has
    both. long_wait_group: all ranks, for long waits. timeout_s: seconds that a rank waits for others. hosts: of each
    rank, the first rank on its host; empty: not known. sends_states: whether every rank gets the states of all other
    players.
    """

    world: World
    batch_world: World
    ranks: Mapping[Side, Sequence[int]] = field(default_factory=dict)
    long_wait_group: dist.ProcessGroup | None = None
    timeout_s: float = 300.0
    hosts: Sequence[int] = ()
    sends_states: bool = False

    @property
    def is_split(self) -> bool:
        """Whether some rank has only one player, or none."""
        return bool(self.ranks)

    @property
    def has_server(self) -> bool:
        """Whether one rank has both players, and the others compute gradients on copies."""
        return self.is_split and self.ranks[Side.G] == self.ranks[Side.D]

    def has(self, side: Side) -> bool:
        """Return whether this rank has a player."""
        return not self.is_split or self.world.rank in self.ranks.get(side, ())

    @property
    def sides(self) -> tuple[Side, ...]:
        """The players of this rank; without separate ranks G and D."""
        return tuple(side for side in self.ranks or Side if self.has(side))

    @property
    def trained_sides(self) -> tuple[Side, ...]:
        """Players whose turns run on this rank: its players, or all on a server's other ranks."""
        if self.has_server:  # rank 0 has the players, and applies the gradients that others compute on copies
            return tuple(side for side in self.ranks if not self.has(side))
        return self.sides

    def sources(self, readers: Side, sender: Side) -> list[int]:
        """Return for each rank of `readers` the rank of `sender` that sends to it, numbered within their sides.

        The readers on a host divide the senders on it evenly, in order; readers on a host without any divide all.
        D on ranks 1, 3, 5 and G on 0, 2, 4, three ranks on a host: G reads from [0, 0, 1], that is from 1, 1 and 3.
        """
        hosts = self.hosts or [0] * self.world.size
        sender_hosts = [hosts[rank] for rank in self.ranks[sender]]
        reader_hosts = [hosts[rank] for rank in self.ranks[readers]]
        sources = []
        for number, host in enumerate(reader_hosts):
            near = [source for source, other in enumerate(sender_hosts) if other == host]
            peers = [reader for reader, other in enumerate(reader_hosts) if other == host]
            place = peers.index(number) * len(near) // len(peers)
            sources.append(near[place] if near else number * len(sender_hosts) // len(reader_hosts))
        return sources

    def gather_merged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON values of all ranks merged; the lowest rank wins. Collective."""
        if not self.is_split:
            return dict(values)
        merged: dict[str, Any] = {}
        # the lowest rank last, since a later update overwrites
        for of_rank in reversed(self.world.gather(dict(values))):
            merged.update(of_rank)
        return merged

    @phase(Phase.EVALUATION)
    def wait_for_all(self) -> None:
        """Wait for every rank, up to an hour: some may be scoring. Collective."""
        if self.long_wait_group is not None:
            self.world.count_bytes("control", 1)
            dist.barrier(self.long_wait_group)

    @contextmanager
    def others_waiting(self) -> Iterator[None]:
        """Let ranks without work in the block wait for its end. Collective.

        A `DivergedError` in it is raised on all ranks.
        """
        problem = ""
        try:
            yield
        except DivergedError as error:
            # Raised after the barrier only: the other ranks wait in it, and would run into their time-out.
            problem = str(error)
        self.wait_for_all()
        if self.is_split:
            problem = next(filter(None, self.world.gather(problem)), "")
        if problem:
            raise DivergedError(problem)


LONG_WAIT_S = 3600.0  # in a group of its own: in the others an hour of scoring would count as the failure of a rank


def colocated_roles(world: World, timeout_s: float = 300.0) -> Roles:
    """Return roles in which every rank has both players."""
    return Roles(world=world, batch_world=world, timeout_s=timeout_s)


def split_roles(
    world: World, counts: Mapping[Side, int], timeout_s: float, is_paired: bool = False, sends_states: bool = False
) -> Roles:
    """Return roles with each player on so many ranks. Collective.

    is_paired, counts: as in `ranks_by_side`. sends_states: as in `Roles`.
    """
    ranks = ranks_by_side(counts, is_paired)
    return replace(_split(world, list(ranks.values()), ranks, timeout_s), sends_states=sends_states)


def ranks_by_side(counts: Mapping[Side, int], is_paired: bool = False) -> dict[Side, list[int]]:
    """Return the ranks of each player. counts: their numbers, whose sum is that of all ranks.

    is_paired: they are spread evenly, so that every host with several ranks has ranks of all;
    otherwise they are consecutive. Rank 0, which writes the record, has the first player either way.
    """
    left = list(range(sum(counts.values())))
    ranks = {}
    for side, count in counts.items():
        # Out of the places that are left, so that the last player has all of them whatever the rounding.
        ranks[side] = [rank for place, rank in enumerate(left) if _has_place(place, count, len(left), is_paired)]
        left = [rank for rank in left if rank not in ranks[side]]
    return ranks


def _has_place(place: int, count: int, size: int, is_paired: bool) -> bool:
    """Return whether a player of `count` of `size` ranks has this place."""
    if not is_paired:
        return place < count
    # Of the first n places it has ceil(n count / size): this one if that number grows here. Place 0 always.
    return -(-(place + 1) * count // size) > -(-place * count // size)


def server_roles(world: World, timeout_s: float) -> Roles:
    """Return roles with both players on rank 0 and copies on the others. Collective."""
    return _split(world, [range(1), range(1, world.size)], {side: range(1) for side in Side}, timeout_s)


def _split(
    world: World, parts: Sequence[Sequence[int]], ranks: Mapping[Side, Sequence[int]], timeout_s: float
) -> Roles:
    """Return roles in which the ranks of each part are a world."""
    hosts = world.gather(world.rank - world.local_rank)  # a host is identified by its first rank
    # every rank creates the groups of all parts, in one order, as `new_group` requires; it is in one of them
    worlds = [_subworld(world, part, hosts, timedelta(seconds=timeout_s)) for part in parts]
    return Roles(
        world=world,
        batch_world=next(subworld for subworld in worlds if subworld is not None),
        ranks=ranks,
        long_wait_group=dist.new_group(backend="gloo", timeout=timedelta(seconds=max(timeout_s, LONG_WAIT_S))),
        timeout_s=timeout_s,
        hosts=hosts,
    )


def _subworld(world: World, ranks: Sequence[int], hosts: Sequence[int], patience: timedelta) -> World | None:
    """Return the world of `ranks`, None on others. Collective over all ranks of `world`, as torch requires."""
    group = dist.new_group(list(ranks), timeout=patience, backend=dist.get_backend(world.group))
    # `group` sends tensors; `control` JSON, on the host: a small value does not wait for what the device has queued
    control = dist.new_group(list(ranks), timeout=patience, backend="gloo")
    if world.rank not in ranks:  # only now: torch requires the calls of ranks outside of the group, too
        return None
    on_host = [rank for rank in ranks if hosts[rank] == hosts[world.rank]]
    return replace(
        world,
        rank=ranks.index(world.rank),
        size=len(ranks),
        local_rank=on_host.index(world.rank),
        local_size=len(on_host),
        group=group if len(ranks) > 1 else None,  # as of a run of one process: strategies skip collectives
        control=control if len(ranks) > 1 else None,
        meshes={},  # those of `world` span ranks of other players
    )
