"""Time of a generation by routine, named as in the parallel Lipizzaner (Perez et al. 2020)."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from paragan.core.phases import Phase, phase

# gather: receive neighbours' genomes. train: steps of the game. evaluate: fitness. score: mixtures.
# update_genomes: cloning, copying, replacement. mutate: learning rates and losses.
ROUTINES = ("gather", "evaluate", "update_genomes", "mutate", "train", "score")


@dataclass
class Profile:
    """Seconds by routine. wall_s: elapsed. cpu_s: CPU time of the whole process."""

    wall_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROUTINES, 0.0))
    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROUTINES, 0.0))

    @contextmanager
    def measure(self, routine: str) -> Iterator[None]:
        """Add the time of the `with` block to a routine."""
        wall = time.perf_counter()
        cpu = time.process_time()
        try:
            with phase(Phase.EVALUATION) if routine in ("evaluate", "score") else nullcontext():
                yield
        finally:
            self.wall_s[routine] += time.perf_counter() - wall
            self.cpu_s[routine] += time.process_time() - cpu

    def add(self, other: Mapping[str, Mapping[str, float]]) -> None:
        """Add the seconds of another process. other: `wall_s` and `cpu_s`."""
        for routine in ROUTINES:
            self.wall_s[routine] += other["wall_s"][routine]
            self.cpu_s[routine] += other["cpu_s"][routine]
