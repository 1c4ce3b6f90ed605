"""Complete state of a cell at a generation boundary: enough to resume it in any process."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.core.types import Side
from paragan.extensions.grid.genome import Genome, Traits

Centre = Mapping[Side, Genome]  # the G and D genomes that neighbours read
NUM_MESSAGES = 3  # of a packed state
_MAX_COUNT = 1 << 48


class PlayerCounters(NamedTuple):
    """Counters of a player: its version, the images that it has seen, its updates without those skipped."""

    version: int
    images: int
    updates: int


@dataclass(frozen=True, kw_only=True)
class CellState:
    """Genomes, weights, scores, stream position and counters of one cell.

    centre: its two genomes. weights: of the generators of its neighbourhood. fitness, score: of its
    genomes and of its mixture, where finite. loss: number of the loss drawn last. position: of its
    data stream. clock: steps and real images.
    """

    number: int
    centre: Centre
    weights: tuple[float, ...] = ()
    fitness: Mapping[Side, float] = field(default_factory=dict)
    score: float | None = None
    loss: int = 0
    position: int = 0
    clock: tuple[int, int] = (0, 0)
    counters: Mapping[Side, PlayerCounters] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        """Values of this cell in the run record, ready for JSON."""
        traits = {side.value: genome.traits for side, genome in self.centre.items()}
        return {
            "fitness": {side.value: value for side, value in self.fitness.items()},
            "score": self.score,
            "lr": {side: trait.lr for side, trait in traits.items()},
            "born": {side: [trait.cell, trait.generation] for side, trait in traits.items()},
            "loss": self.loss,
            "weights": [round(weight, 4) for weight in self.weights],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all values except the tensors, ready for JSON."""
        return {
            "traits": {side.value: asdict(genome.traits) for side, genome in self.centre.items()},
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
        """Rebuild a state from the values of `to_dict` and the tensors.

        Raises `KeyError`, `TypeError` or `ValueError` if a value is invalid.
        """
        traits = {side: Traits.from_dict(values["traits"][side.value]) for side in Side}
        steps, images = (valid_count(count) for count in values["clock"])
        counters = {side: PlayerCounters(*map(valid_count, values["counters"][side.value])) for side in Side}
        return cls(
            number=number,
            centre={side: Genome(dict(tensors[side]), traits[side]) for side in Side},
            weights=tuple(finite_number(weight) for weight in values["weights"]),
            # not `Side(name)`, which would take any name as that of an extra player
            fitness={Side[name.upper()]: finite_number(value) for name, value in values["fitness"].items()},
            score=None if values["score"] is None else finite_number(values["score"]),
            loss=valid_count(values["loss"]),
            position=valid_count(values["position"]),
            clock=(steps, images),
            counters=counters,
        )

    def pack(self) -> list[Tensor]:
        """Encode as messages on the host: G, D and all other values."""
        genomes = [self.centre[side].pack() for side in Side]
        values = json.dumps({"number": self.number, **self.to_dict()}).encode()
        return [*genomes, torch.frombuffer(bytearray(values), dtype=torch.uint8)]

    @classmethod
    def unpack(cls, messages: Sequence[Tensor], like: Centre) -> CellState:
        """Decode the messages of `pack`. like: genomes of the same networks.

        Raises `CheckpointError` if the messages are invalid.
        """
        try:
            *genome_messages, values_message = messages
            values = json.loads(values_message.numpy().tobytes())
            genomes = {side: Genome.unpack(data, like[side]) for side, data in zip(Side, genome_messages, strict=True)}
            tensors = {side: genome.tensors for side, genome in genomes.items()}
            return cls.from_dict(valid_count(values["number"]), values, tensors)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            problem = "the received bytes are not a valid cell state"
            raise CheckpointError(f"cell: {problem} ({str(error)[:100]})") from None


def finite_number(value: Any) -> float:
    """Return a finite number as a float; raises `ValueError` for anything else."""
    if type(value) not in (float, int) or not math.isfinite(value):
        raise ValueError(f"{value!r}"[:100])
    return float(value)


def valid_count(value: Any) -> int:
    """Return an integer of 0 to 2**48 - 1; raises `ValueError` for anything else."""
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"{value!r}"[:100])
    return value
