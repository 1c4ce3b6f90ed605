"""What there is to know of a cell at the edge of a generation: enough to go on with it, here or anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paragan.coevolution.genome import Genome, Traits
from paragan.core.errors import CheckpointError
from paragan.core.types import Side

Centre = Mapping[Side, Genome]  # the two genomes that stand for a cell
_MAX_COUNT = 1 << 48


@dataclass(frozen=True)
class CellState:
    """centre: its two genomes. weights: of its neighbours' generators. fitness, score: of its genomes and of its
    mixture, where the last generation found them finite. loss: number of the one drawn last.

    position: of its stream. clock: steps and real images. counters: of each player, its version, images and updates.
    """

    number: int
    centre: Centre
    weights: tuple[float, ...] = ()
    fitness: Mapping[Side, float] = field(default_factory=dict)
    score: float | None = None
    loss: int = 0
    position: int = 0
    clock: tuple[int, int] = (0, 0)
    counters: Mapping[Side, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        """For the record."""
        traits = {side.value: genome.traits for side, genome in self.centre.items()}
        return {
            "fitness": {side.value: value for side, value in self.fitness.items()},
            "score": self.score,
            "lr": {side: found.lr for side, found in traits.items()},
            "born": {side: [found.cell, found.generation] for side, found in traits.items()},
            "loss": self.loss,
            "weights": [round(weight, 4) for weight in self.weights],
        }

    def to_dict(self) -> dict[str, Any]:
        """All but the tensors, as JSON has it."""
        return {
            "traits": {side.value: genome.traits.to_dict() for side, genome in self.centre.items()},
            "weights": list(self.weights),
            "fitness": {side.value: value for side, value in self.fitness.items()},
            "score": self.score,
            "loss": self.loss,
            "position": self.position,
            "clock": list(self.clock),
            "counters": {side.value: list(counts) for side, counts in self.counters.items()},
        }

    @classmethod
    def from_dict(cls, number: int, values: Any, tensors: Mapping[Side, Mapping[str, Tensor]]) -> CellState:
        """From what `plain` said. `KeyError`, `TypeError` or `ValueError` for what no run would have written."""
        traits = {side: Traits.from_dict(values["traits"][side.value]) for side in Side}
        steps, images = (valid_count(count) for count in values["clock"])
        counters = {side: tuple(valid_count(count) for count in values["counters"][side.value]) for side in Side}
        if any(len(counts) != 3 for counts in counters.values()):
            raise ValueError(f"counters {values['counters']}"[:200])
        return cls(
            number,
            {side: Genome(dict(tensors[side]), traits[side]) for side in Side},
            tuple(finite_number(weight) for weight in values["weights"]),
            {Side(name): finite_number(value) for name, value in values["fitness"].items()},
            None if values["score"] is None else finite_number(values["score"]),
            valid_count(values["loss"]),
            valid_count(values["position"]),
            (steps, images),
            counters,  # type: ignore[arg-type]  # three each
        )

    def pack(self, device: torch.device | None = None) -> list[Tensor]:
        """As three messages on the host: G, D, and the rest. device: as five, where what is on it stays there."""
        rest = json.dumps({"number": self.number, **self.to_dict()}).encode()
        genomes = [self.centre[side] for side in Side]
        parts = [(g.pack(),) if device is None else g.pack_split(device) for g in genomes]
        return [*(one for part in parts for one in part), torch.frombuffer(bytearray(rest), dtype=torch.uint8)]

    @classmethod
    def unpack(cls, messages: Sequence[Tensor], like: Centre) -> CellState:
        """What `packed` wrote, of networks like those. `CheckpointError` for anything else."""
        try:
            *packed, rest = messages
            values = json.loads(rest.numpy().tobytes())
            half = len(packed) // 2
            genomes = {}
            for side, (first, *body) in zip(Side, (packed[:half], packed[half:]), strict=True):
                genomes[side] = Genome.unpack(first, like[side], *body)
            return cls.from_dict(valid_count(values["number"]), values, {side: genomes[side].tensors for side in Side})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"cell: found bytes that are none ({str(error)[:100]})") from None


def finite_number(value: Any) -> float:
    if type(value) not in (float, int) or not math.isfinite(value):
        raise ValueError(f"{value!r}"[:100])
    return float(value)


def valid_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"{value!r}"[:100])
    return value
