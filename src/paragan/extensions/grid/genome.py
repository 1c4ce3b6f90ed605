"""Genome: an immutable copy of a player after a generation, which cells read, send and clone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from paragan.core.errors import CheckpointError
from paragan.core.layout import StoredTensors, shapes_of
from paragan.game.network import CalledNetwork, Calling
from paragan.game.player import Player
from paragan.game.state import check_same, restore, state_of
from paragan.layers.modes import remember_modes

_NETWORKS = ("net/", "ema/")
_DEFAULT_CALLING = Calling()


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a genome besides its tensors.

    lr: learning rate before any schedule. loss: of its last training, as an index into the losses of the grid. cell: in
    which its lineage began. generation: in which it was created. memory: type of the optimiser
    whose state (moments) it contains, such as torch.optim.adam.Adam; empty: it contains none.
    """

    lr: float
    loss: int = 0
    cell: int = 0
    generation: int = 0
    memory: str = ""

    @classmethod
    def from_dict(cls, values: Any) -> Traits:
        """Rebuild traits from a file or message; raises `ValueError` or `TypeError` if invalid."""
        traits = cls(**values)
        counts = (traits.loss, traits.cell, traits.generation)
        are_counts = all(type(count) is int and 0 <= count < 1 << 48 for count in counts)
        is_rate = type(traits.lr) is float and 0 <= traits.lr < math.inf
        if not (are_counts and is_rate and isinstance(traits.memory, str)):
            raise ValueError(f"invalid traits: {traits}"[:200])
        return traits


@dataclass(frozen=True, eq=False)
class Genome:
    """Tensors and traits of one player.

    tensors: weights under `net/` and `ema/`; optimiser state under `optimizer/` and `player/`.
    Counts of updates and images are those of a player and not of its genome: the schedule of a cell follows its own
    updates. A genome equals only itself, not one with the same tensors.
    """

    tensors: Mapping[str, Tensor] = field(repr=False)
    traits: Traits

    @classmethod
    def from_player(cls, player: Player, traits: Traits) -> Genome:
        """Copy a player."""
        pieces, _ = state_of(player)
        tensors = {name: value.clone() for name, value in pieces.tensors.items() if name != "player/updates"}
        has_memory = any(name.startswith("optimizer/") for name in tensors)
        return cls(tensors, replace(traits, memory=_optimizer_type(player) if has_memory else ""))

    def load_into(self, player: Player) -> None:
        """Turn a player into a clone of this genome, including its learning rate.

        Optimiser state of another optimiser type is dropped.
        """
        loaded = self.tensors if self.traits.memory == _optimizer_type(player) else self.weights
        # what the genome does not have, the player keeps
        current = {"player/updates": player.updates}
        if player.scaler is not None:
            current |= {"player/scale": player.scaler.scale, "player/good": player.scaler.good}
        counters = {"version": player.version, "images": player.images, "due_turns": player.due_turns}
        restore(player, StoredTensors.of(current | dict(loaded)), counters)
        player.set_lr_base(self.traits.lr)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Tensors of the network and its EMA, without optimiser state."""
        return {name: value for name, value in self.tensors.items() if name.startswith(_NETWORKS)}

    def network_state(self, average: bool = False) -> dict[str, Tensor]:
        """Return parameters and buffers by module name. average: those of the EMA, if any."""
        has_average = any(name.startswith("ema/") for name in self.tensors)
        prefix = "ema/" if average and has_average else "net/"
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}

    @cached_property
    def file_bytes(self) -> bytes:
        """The genome as a safetensors file, with its traits as metadata; equal tensors and traits give equal bytes."""
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        return save(tensors, {"traits": json.dumps(asdict(self.traits))})

    def pack(self) -> Tensor:
        """Serialise to bytes (uint8) on the host."""
        return torch.frombuffer(bytearray(self.file_bytes), dtype=torch.uint8)

    @classmethod
    def unpack(cls, data: Tensor, like: Genome) -> Genome:
        """Deserialise the bytes of `pack`.

        like: a genome with the same network. Raises `CheckpointError` if the bytes are invalid.
        """
        file_bytes = data.numpy().tobytes()
        try:
            tensors = load(file_bytes)
            # `load` returns no metadata, which the format of safetensors has in front of the tensors
            header_size = int.from_bytes(file_bytes[:8], "little")
            metadata = json.loads(file_bytes[8 : 8 + header_size])["__metadata__"]
            genome = cls(tensors, Traits.from_dict(json.loads(metadata["traits"])))
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise CheckpointError(f"genome: the received bytes are not a valid genome ({str(error)[:100]})") from None
        check_same(shapes_of(genome.weights), shapes_of(like.weights), "genome")
        return genome


class EvalNetwork:
    """Network into which genomes are loaded for evaluation.

    net: newly made, with the players' architecture; it is never trained. calling: how the players call their networks.
    """

    def __init__(self, net: nn.Module, calling: Calling = _DEFAULT_CALLING) -> None:
        remember_modes(net)  # modules that training leaves in evaluation mode, before all are
        self.net = net.eval().requires_grad_(False)
        self._called = CalledNetwork(module=net, calling=calling)
        self._state = dict(net.state_dict())
        self._loaded: tuple[Genome, bool] | None = None

    @torch.no_grad()
    def load(self, genome: Genome, average: bool = False) -> CalledNetwork:
        """Load a genome and return the network, valid until the next call. average: use the EMA."""
        if self._loaded != (genome, average):
            for name, value in genome.network_state(average).items():
                self._state[name].copy_(value)
            self._loaded = (genome, average)
        return self._called


def _optimizer_type(player: Player) -> str:
    return f"{type(player.optimizer).__module__}.{type(player.optimizer).__name__}"
