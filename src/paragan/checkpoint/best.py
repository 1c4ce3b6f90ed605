"""The checkpoint with the best score so far, kept in a folder of its own: pruning does not reach it."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan.checkpoint.reader import MANIFEST
from paragan.core.errors import CheckpointError
from paragan.core.files import link_or_copy, read_bytes, refuse_link, write_text
from paragan.evaluation.evaluator import Score

_SCORE = "score.json"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Best:
    """`RUN/best`: a checkpoint folder and its `score.json`. The first metric of a score decides; less is better."""

    folder: Path

    def path(self) -> Path:
        """Where it lies; `CheckpointError` if there is none."""
        if (path := self._held()) is not None:
            return path
        raise CheckpointError(
            f"{self.folder}: found no best checkpoint, expected one of a run that was scored; leave --best out"
        )

    def _held(self) -> Path | None:
        """A kill between two renames leaves it under the other name."""
        return next((path for path in (self.folder, self._next) if (path / MANIFEST).is_file()), None)

    def is_beaten_by(self, score: Score) -> bool:
        """Whether this score is better, or the one so far was measured otherwise and does not compare."""
        metric, value = next(iter(score.metrics.items()))
        if not math.isfinite(value):
            return False
        before = self._score()
        same = (before.get("metric"), before.get("num_images"), before.get("protocol"))
        if same != (metric, score.num_images, _as_read(score.protocol)):
            return True
        return not isinstance(before.get("value"), (int, float)) or value < before["value"]

    def update(self, checkpoint: Path, step: int, images: int, score: Score) -> None:
        """Replace it by this finished checkpoint, without a copy of the files where the disk can link them."""
        metric, value = next(iter(score.metrics.items()))
        told = {"step": step, "images": images, "metric": metric, "value": value, **score.values}
        new, old = self._next, self._former
        for folder in (self.folder, new, old):
            refuse_link(folder)
        try:
            self.finish_replacement()
            new.mkdir(parents=True)
            write_text(new / _SCORE, json.dumps(told, indent=1) + "\n")
            names = sorted(path.name for path in checkpoint.iterdir() if path.name not in (_SCORE, MANIFEST))
            for name in (*names, MANIFEST):  # the manifest last: with it the folder counts
                link_or_copy(checkpoint / name, new / name)
            if self.folder.exists():
                self.folder.rename(old)
            new.rename(self.folder)
        except OSError as error:
            raise CheckpointError(f"{self.folder}: not written ({error.strerror}); make room and go on") from None
        shutil.rmtree(old, ignore_errors=True)

    def finish_replacement(self) -> None:
        """Finish a replacement that a kill interrupted, and remove what it left."""
        if self._held() == self._next:
            self._next.rename(self.folder)
        for debris in (self._next, self._former):
            shutil.rmtree(debris, ignore_errors=True)

    @property
    def _former(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.old")

    @property
    def _next(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.new")

    def _score(self) -> dict[str, Any]:
        if (path := self._held()) is None:
            return {}
        try:
            found = json.loads(read_bytes(path / _SCORE, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _as_read(protocol: dict[str, Any]) -> Any:
    return json.loads(json.dumps(protocol))
