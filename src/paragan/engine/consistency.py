"""Periodic check that all ranks hold the same state, by checksums over the bits of every tensor."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.dist import World
from paragan.core.errors import RankError
from paragan.core.layout import local_shard
from paragan.core.types import Clock
from paragan.game.player import Player
from paragan.game.policy import learning_rates
from paragan.parallel import Strategy


@dataclass
class ConsistencyCheck:
    """Comparison of all ranks at the first step checked and then every `steps` steps; 0: never.

    Compared are, for every player, the tensors of network and average, counters and learning rate.
    Each rank sends one hash. A shard is compared with its replicas on other ranks.
    """

    world: World
    steps: int
    _last: int | None = None

    def check(self, clock: Clock, players: Mapping[str, Player]) -> None:
        """Raise `RankError` on all ranks that names the first difference. Collective.

        Skipped while ranks differ by design (between two averagings of `local_sgd`).
        """
        if self.world.size == 1 or not self.steps or not all(player.is_synchronized for player in players.values()):
            return
        if self._last is not None and clock.step < self._last + self.steps:
            return
        self._last = clock.step
        whole_sums, shard_sums = _sums(clock, players)
        gathered = self.world.gather([_digest(whole_sums), _digest(sorted(shard_sums)), _digest(shard_sums)])
        wholes = {whole for whole, _, _ in gathered}
        # The name of a shard has its place: ranks with equal names are replicas, and must have equal values.
        names_of_shards = {names for _, names, _ in gathered}
        shards = {(names, values) for _, names, values in gathered}
        if len(wholes) > 1 or len(shards) > len(names_of_shards):
            self._raise_difference(clock.step, self.world.gather(whole_sums | shard_sums))

    def _raise_difference(self, step: int, sums_by_rank: list[dict[str, Any]]) -> None:
        expected: dict[str, tuple[int, Any]] = {}
        for rank, sums in enumerate(sums_by_rank):
            for name, value in sums.items():
                first_rank, first_value = expected.setdefault(name, (rank, value))
                if value != first_value:
                    raise RankError(
                        f"step {step}: {name} differs between ranks {first_rank} and {rank}: they no longer train one "
                        "run; run the same command again to resume from the last checkpoint; if it happens again, "
                        "look for custom code that draws random numbers or branches by rank"
                    )
        raise RankError(f"step {step}: not all ranks hold the same tensors; build equal networks on all of them")


def _sums(clock: Clock, players: Mapping[str, Player]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return by name what must be equal on all ranks, and on all replicas of a shard; one transfer per player."""
    whole_sums: dict[str, Any] = {"clock: step": clock.step, "clock: images": clock.images}
    shard_sums: dict[str, Any] = {}
    for side, player in players.items():
        numbers = {"updates": player.updates}
        if player.scaler is not None:
            numbers |= {"loss scale": player.scaler.scale, "good steps": player.scaler.good}
        whole_sums |= {f"{side}: {name}": float(value) for name, value in numbers.items()}
        for name, rate in learning_rates(player.optimizer).items():
            whole_sums[f"{side}: learning rate{name.removeprefix('lr')}"] = rate
        whole_sums |= {f"{side}: version": player.version, f"{side}: images": player.images}
        tensors = list(_named_tensors(f"{side}: ", player.net, player.strategy))
        if player.ema is not None:
            tensors += _named_tensors(f"{side}: average: ", player.ema.net, player.strategy)
        checksums = torch.stack([checksum(tensor) for _, tensor, _ in tensors]).tolist() if tensors else []
        for (name, _, is_shard), value in zip(tensors, checksums, strict=True):
            (shard_sums if is_shard else whole_sums)[name] = value
    return whole_sums, shard_sums


def _digest(sums: Any) -> str:
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()


def _named_tensors(prefix: str, net: nn.Module, strategy: Strategy) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield (name, tensor, whether it is a shard); the name of a shard has its place, so that only replicas compare.

    A weight with fewer rows than ranks can be whole on one rank: if others are cut, it is a shard.
    All tensors of a pipeline stage are shards.
    """
    layout = strategy.layout(net)
    is_cut = not all(box.is_whole for box in layout.values())
    for name, value in net.named_parameters():
        box = layout[name]
        is_shard = (is_cut and value.dim() > 0) or box.stage is not None
        place = f" (piece at {box.offset} of several)" if is_shard else ""
        yield f"{prefix}{name}{place}", local_shard(value.detach()), is_shard
    # Under local SGD, buffers differ at once: the statistics of a norm of D count the images of G's next turn, too.
    if not strategy.exemption:
        for name, buffer in net.named_buffers():
            if not buffer.is_meta:
                is_shard = name in layout and layout[name].stage is not None
                place = " (of a stage of several)" if is_shard else ""
                yield f"{prefix}{name}{place}", buffer.detach(), is_shard


def checksum(tensor: Tensor) -> Tensor:
    """Compute two sums of the tensor's 64-bit words: plain, and weighted by position.

    Returns int64 (2,) on the tensor's device. A flipped bit changes the first; swapping two unequal
    words changes the second.
    """
    octets = tensor.contiguous().reshape(-1).view(torch.uint8)
    if len(octets) % 8 or octets.storage_offset() % 8:
        octets = torch.cat([octets, octets.new_zeros(-len(octets) % 8)])
    words = octets.view(torch.int64)
    positions = torch.arange(len(words), device=words.device)
    return torch.stack([words.sum(), (words * positions).sum()])
