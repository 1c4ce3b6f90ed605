"""Record of a run as a replay needs it: sessions, log points, checkpoints and rollbacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import ConfigError
from paragan.core.files import read_json_lines


@dataclass(frozen=True)
class RecordedRun:
    """Content of a record and of its checkpoints.

    sessions: (finished steps, ranks) at each start. images: through D, by log point. checkpoints:
    folders by step. rollbacks: images that had been lost after each, by step.
    """

    sessions: Sequence[tuple[int, int]]
    images: Mapping[int, int]
    checkpoints: Mapping[int, Path]
    rollbacks: Mapping[int, int]

    @property
    def steps(self) -> list[int]:
        """Steps with recorded losses or a checkpoint."""
        return sorted({*self.images, *self.checkpoints} - {0})

    def end_of_session(self, start: int) -> float:
        """Return the step at which the session after the one from `start` began; infinity: none."""
        return min((begin for begin, _ in self.sessions if begin > start), default=math.inf)


def read_recorded(path: Path) -> RecordedRun:
    """Read the record of a run folder. Raises `ConfigError` if it is invalid."""
    sessions: list[tuple[int, int]] = []
    images: dict[int, int] = {}
    rollbacks: dict[int, int] = {}
    try:
        for line in read_json_lines(path / "metrics.jsonl"):
            if line.get("kind") == "start":
                sessions.append((int(line["step"]), int(line["ranks"])))
            elif line.get("kind") == "step":
                images[int(line["step"])] = round(line["kimg"] * 1000)
            elif "rollback" in line:
                rollbacks[int(line["step"])] = int(line["rollback"]["lost_images"])
    except OSError as error:
        raise ConfigError(f"cannot read the record {path}/metrics.jsonl: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}/metrics.jsonl has an invalid line; pass a run folder made by `train`") from None
    folders = CheckpointWriter(path / "checkpoints").paths()
    by_step = {int(name): folder for folder in folders if (name := folder.name[5:]).isdecimal()}
    return RecordedRun(sessions, images, by_step, rollbacks)
