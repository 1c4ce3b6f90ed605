"""Whether all ranks still train the same run: sums over the bits of what must be equal, compared every so often."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.clock import Clock
from paragan.core.dist import World
from paragan.core.errors import RankError
from paragan.core.shard import local_shard
from paragan.core.window import Window
from paragan.game.player import Player

_ROW = 1024  # words
_PIECE = " of several)"


@dataclass
class Agreement:
    """Compares at the first step it is shown, and then every `steps` steps; 0: never. What travels is one hash a rank.

    Of a player: the tensors of network and average, counters and learning rate. Pieces are compared with the same
    pieces of other ranks, where there are copies.
    """

    world: World
    steps: int
    _last: int | None = None

    def check(self, clock: Clock, players: Mapping[str, Player]) -> None:
        """`RankError` on all ranks names the first that differs. Ranks that go their own ways are not compared."""
        if self.world.size == 1 or not self.steps or not all(player.is_synchronized for player in players.values()):
            return
        if self._last is not None and clock.step < self._last + self.steps:
            return
        self._last = clock.step
        mine = _sums(clock, players)
        windows = [player.strategy.layout(player.net).state.index for player in players.values()]
        told = self.world.gather([_digest(mine, pieces=False), windows, _digest(mine, pieces=True)])
        whole, cut = {of_whole for of_whole, _, _ in told}, {json.dumps(one[1:]) for one in told}
        if len(whole) > 1 or len(cut) > len({json.dumps(windows) for _, windows, _ in told}):
            self._refuse(clock.step, self.world.gather(mine))

    def _refuse(self, step: int, found: list[dict[str, Any]]) -> None:
        seen: dict[str, tuple[int, Any]] = {}
        for rank, theirs in enumerate(found):
            for name, value in theirs.items():
                first, expected = seen.setdefault(name, (rank, value))
                if value != expected:
                    raise RankError(
                        f"step {step}: {name} differs between ranks {first} and {rank}: they no longer train one run; "
                        "give the same command again to go on from the last checkpoint, and if it comes back look for "
                        "what draws or branches by rank in code of your own"
                    )


def _sums(clock: Clock, players: Mapping[str, Player]) -> dict[str, Any]:
    """What has to be equal, by name; one transfer from the device per player."""
    found: dict[str, Any] = {"clock: step": clock.step, "clock: images": clock.images}
    for side, player in players.items():
        numbers = {"updates": player.updates, "learning rate": player.optimizer.param_groups[0]["lr"]}
        if player.scaler is not None:
            numbers |= {"loss scale": player.scaler.scale, "good steps": player.scaler.good}
        found |= {f"{side}: {name}": float(value) for name, value in numbers.items()}
        found |= {f"{side}: version": player.version, f"{side}: images": player.images}
        tensors = dict(_held(player))
        sums = torch.stack([checksum(tensor) for tensor in tensors.values()]).tolist() if tensors else []
        found |= {f"{side}: {name}": of_tensor for name, of_tensor in zip(tensors, sums, strict=True)}
    return found


def _digest(sums: Mapping[str, Any], pieces: bool) -> str:
    """Of those that are pieces, or of the others."""
    held = {name: value for name, value in sums.items() if name.endswith(_PIECE) == pieces}
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def _held(player: Player) -> Iterator[tuple[str, Tensor]]:
    layout = player.strategy.layout(player.net)
    yield from _named("", player.net, layout.weights)
    if player.ema is not None:
        yield from _named("average: ", player.ema.net, layout.state)


def _named(prefix: str, net: nn.Module, window: Window) -> Iterator[tuple[str, Tensor]]:
    """What has axes is cut; the rest, and buffers, every rank has."""
    for name, value in net.named_parameters():
        piece = f" (piece {window.index}{_PIECE}" if window.of > 1 and value.dim() else ""
        yield f"{prefix}{name}{piece}", local_shard(value.detach())
    yield from ((prefix + name, value.detach()) for name, value in net.named_buffers() if not value.is_meta)


def checksum(tensor: Tensor) -> Tensor:
    """Three int64 on its device, of its bits: their sum, and the sums weighted by row and by column of a matrix.

    A bit that flips changes the first, two unequal words that change places one of the others.
    """
    octets = tensor.contiguous().reshape(-1).view(torch.uint8)
    if len(octets) % 8 or octets.storage_offset() % 8:
        octets = torch.cat([octets, octets.new_zeros(-len(octets) % 8)])
    words = octets.view(torch.int64)
    full = len(words) // _ROW * _ROW
    matrix, rest = words[:full].view(-1, _ROW), words[full:]
    rows, columns = torch.cat([matrix.sum(1), rest.sum(0, keepdim=True)]), matrix.sum(0)
    columns[: len(rest)] += rest
    weights = torch.arange(1, 1 + max(len(rows), _ROW), device=words.device)
    return torch.stack([rows.sum(), (rows * weights[: len(rows)]).sum(), (columns * weights[:_ROW]).sum()])
