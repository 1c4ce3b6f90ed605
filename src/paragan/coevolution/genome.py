"""One player as it was at the end of a generation: what neighbours read, what travels, and what is cloned.

A genome is never written to.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from paragan.coevolution import tensor_bytes
from paragan.core.errors import CheckpointError
from paragan.core.pieces import StoredTensors
from paragan.game.player import Player
from paragan.game.state import check_same, restore, state_of

_PLAYER_KEYS = ("player/updates",)  # the schedule follows the cell's own time, whoever it trains
_NETWORKS = ("net/", "ema/")


@dataclass(frozen=True)
class Traits:
    """lr: learning rate before any schedule. loss: number of the loss it was trained with last. cell: of the first
    generation from which it descends; generation: when it came to be. memory: of which kind of optimiser it remembers
    something; empty: of none.
    """

    lr: float
    loss: int = 0
    cell: int = 0
    generation: int = 0
    memory: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Traits:
        """From what a file or a message says; `ValueError` or `TypeError` for anything that no run would have told."""
        found = cls(**values)
        counts = (found.loss, found.cell, found.generation)
        odd = any(type(count) is not int or not 0 <= count < 1 << 48 for count in counts)
        if odd or type(found.lr) is not float or not 0 <= found.lr < math.inf or not isinstance(found.memory, str):
            raise ValueError(f"found the traits {found}"[:200])
        return found


@dataclass(frozen=True, eq=False)
class Genome:
    """tensors: under `net/`, `ema/` and, of what an optimiser remembers, `optimizer/` and `player/`.

    Equal to those with the same weights, made from one another, whatever either remembers.
    """

    tensors: Mapping[str, Tensor] = field(repr=False)
    traits: Traits
    _individual: object = field(default_factory=object, repr=False)
    _bytes: Tensor | None = field(default=None, init=False, repr=False)  # of which the tensors are views

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Genome) and self._individual is other._individual

    def __hash__(self) -> int:
        return id(self._individual)

    @classmethod
    def from_player(cls, player: Player, traits: Traits) -> Genome:
        """A copy; on the host as the bytes that may have to travel."""
        wanted = {name: value for name, value in state_of(player)[0].tensors.items() if name not in _PLAYER_KEYS}
        kind = _optimizer_type(player) if any(name.startswith("optimizer/") for name in wanted) else ""
        found = cls(wanted, replace(traits, memory=kind))
        if not all(value.device.type == "cpu" and value.dtype in tensor_bytes.DTYPES for value in wanted.values()):
            return replace(found, tensors={name: value.clone() for name, value in wanted.items()})
        data = found.pack()
        found = replace(found, tensors=tensor_bytes.deserialize(data)[0])
        object.__setattr__(found, "_bytes", data)
        return found

    def load_into(self, player: Player) -> None:
        """The player becomes a clone, learning rate and all. Another kind of optimiser than its own starts anew."""
        remembered = self.tensors if self.traits.memory == _optimizer_type(player) else self.weights
        own = {"player/updates": player.updates, **({} if player.scaler is None else _scaler_state(player))}
        counters = {"version": player.version, "images": player.images}
        restore(player, StoredTensors.of(own | dict(remembered)), counters)
        player.set_lr_base(self.traits.lr)

    def without_optimizer_state(self, lr: float | None = None) -> Genome:
        """Without what an optimiser remembers. lr: another rate."""
        kept = self.traits.lr if lr is None else lr
        return replace(self, tensors=self.weights, traits=replace(self.traits, memory="", lr=kept))

    @property
    def weights(self) -> dict[str, Tensor]:
        """Without what an optimiser remembers."""
        return {name: value for name, value in self.tensors.items() if name.startswith(_NETWORKS)}

    def network_state(self, average: bool = False) -> dict[str, Tensor]:
        """Parameters and buffers by their plain names. average: those of the average, where there is one."""
        prefix = "ema/" if average and any(name.startswith("ema/") for name in self.tensors) else "net/"
        return {n.removeprefix(prefix): value for n, value in self.tensors.items() if n.startswith(prefix)}

    def pack(self) -> Tensor:
        """As bytes (uint8), which nobody writes to."""
        if self._bytes is not None:
            return self._bytes
        return tensor_bytes.serialize(self.tensors, {"traits": json.dumps(self.traits.to_dict())})

    def pack_split(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """As bytes (uint8) on the host, and those of what lies on the device, there."""
        return tensor_bytes.serialize_split(self.tensors, {"traits": json.dumps(self.traits.to_dict())}, device)

    @classmethod
    def unpack(cls, data: Tensor, like: Genome, body: Tensor | None = None) -> Genome:
        """What `packed` wrote, or `parted`, of networks like that one's; its tensors are views of the bytes.
        `CheckpointError` for anything else.
        """
        try:
            tensors, told = tensor_bytes.deserialize(data, body)
            found = cls(tensors, Traits.from_dict(json.loads(told["traits"])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise CheckpointError(f"genome: found bytes that are none ({str(error)[:100]})") from None
        check_same(found.weights, like.weights, "genome")
        return found

    @property
    def digest(self) -> str:
        """Equal where all bits are."""
        return hashlib.sha256(self.pack().numpy().tobytes()).hexdigest()[:16]


def _optimizer_type(player: Player) -> str:
    return f"{type(player.optimizer).__module__}.{type(player.optimizer).__name__}"


def _scaler_state(player: Player) -> dict[str, Tensor]:
    assert player.scaler is not None
    return {"player/scale": player.scaler.scale, "player/good": player.scaler.good}
