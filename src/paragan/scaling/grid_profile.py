"""Profile of a grid on one process: what a worker's generation costs, measured, as one document."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from paragan.coevolution.topology import Topology
from paragan.core.files import write_text
from paragan.scaling.profile import Curve, curve_of, read_profile_document, slowdown

KIND = "grid"
_VERSION = 1
_CURVES = ("train_s", "evaluate_s", "score_s", "generation_s", "busy_s")


@dataclass(frozen=True)
class GenerationWork:
    """What one worker does in a generation, in numbers from which its time follows.

    cells: that it trains. passes: of a network over the images by which individuals are compared.
    generators: whose images are scored for mixtures.
    """

    cells: int
    passes: int
    generators: int

    @classmethod
    def of(cls, cells: Sequence[int], topology: Topology) -> GenerationWork:
        """Count the work of a worker with these cells.

        Pairs of a neighbourhood are compared before training, once for all cells of the worker, and
        each trained individual with its neighbourhood after it.
        """
        groups = [topology.neighbours[cell] for cell in cells]
        pairs = set().union(*(product(group, group) for group in groups))
        generators = len(topology.reach(cells)) + len(cells)
        trained = 2 * sum(map(len, groups))
        # each generator makes its images once, and each discriminator reads the real ones once
        return cls(len(cells), len(pairs) + trained + 2 * generators, generators)


@dataclass(frozen=True)
class GridProfile:
    """Costs of a generation on one process, without the exchange with other workers.

    recipe, model: as configured; fingerprint: of networks, losses and grid. machine, threads,
    device: where it was measured. shape: of the grid. train_s: seconds by the worker's cells,
    evaluate_s: by passes, score_s: by generators; together those of a generation. generation_s: of
    a whole generation by cells, and busy_s: while `busy_workers` workers of this host computed at
    the same time, itself included. cpu_share: of a generation in which a processor core computed;
    the rest is an accelerator's. state_bytes, messages: of one cell in an exchange.
    """

    recipe: str
    model: str
    fingerprint: str
    machine: str
    device: str
    threads: int
    shape: str
    train_s: Curve
    evaluate_s: Curve
    score_s: Curve
    generation_s: Curve
    busy_s: Curve
    busy_workers: int
    cpu_share: float
    state_bytes: int
    messages: int
    kind: str = KIND
    version: int = _VERSION

    def seconds(self, work: GenerationWork) -> float:
        """Return the seconds of a generation of a worker that computes alone on its host."""
        compared_s = self.evaluate_s.at(work.passes) + self.score_s.at(work.generators)
        return self.train_s.at(work.cells) + compared_s

    def contention(self, cells: int, workers: int) -> float:
        """Return how much slower a generation is while so many workers of a host compute."""
        times = (self.busy_s.at(cells), self.generation_s.at(cells))
        return slowdown(*times, self.busy_workers, workers)

    def write(self, path: Path) -> None:
        """Write the document."""
        write_text(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def read_grid_profile(path: Path) -> GridProfile:
    """Return a profile from a file of `GridProfile.write`; `ConfigError` for any other file."""
    return read_profile_document(path, KIND, _VERSION, _profile_of)


def _profile_of(tree: Mapping[str, Any]) -> GridProfile:
    return GridProfile(**{**tree, **{name: curve_of(tree[name]) for name in _CURVES}})
