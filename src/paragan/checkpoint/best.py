"""Checkpoint with the best score, in a separate folder that pruning does not touch."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.writer import link_checkpoint
from paragan.core.errors import CheckpointError
from paragan.core.files import check_no_link, read_json_file, remove_tree, write_json
from paragan.evaluation.score import Score
from paragan.report.record_values import comparable_part, dotted_settings

_SCORE = "score.json"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Best:
    """Folder `RUN/best`: the checkpoint that `Score.decisive` selects, with its `score.json`."""

    folder: Path

    def path(self) -> Path:
        """Return the folder of the checkpoint. Raises `CheckpointError` if it is missing."""
        if (path := self._find()) is not None:
            return path
        raise CheckpointError(f"{self.folder}: no best checkpoint, the run was never scored; leave --best out")

    def _find(self) -> Path | None:
        """Return the folder under either name; a kill between renames leaves the second name."""
        return next((path for path in (self.folder, self._next) if (path / MANIFEST).is_file()), None)

    def is_beaten_by(self, score: Score) -> bool:
        """Return whether this score is better, or incomparable because the protocols differ."""
        metric = score.decisive
        if metric is None or not math.isfinite(score.metrics[metric]):
            return False
        before = self._read_score()
        if (before.get("metric"), before.get("num_images")) != (metric, score.num_images):
            return before.get("metric") not in score.ranked[: score.ranked.index(metric)]  # those have no value now
        # as it reads back from a file, where tuples are lists
        protocols = (before.get("protocol"), json.loads(json.dumps(score.protocol)))
        former_part, part = (comparable_part(dict(dotted_settings(protocol)), metric) for protocol in protocols)
        former = before.get("value")
        if former_part != part or not isinstance(former, (int, float)):
            return True
        return score.direction(metric) * (score.metrics[metric] - former) > 0

    def update(self, checkpoint: Path, step: int, images: int, score: Score) -> None:
        """Replace the best checkpoint by this one, as hard links if the file system has them."""
        metric = score.decisive
        assert metric is not None
        value = score.metrics[metric]
        values = {"step": step, "images": images, "metric": metric, "value": value, **score.values}
        new = self._next
        check_no_link(self.folder)
        check_no_link(new)
        try:
            self.finish_replacement()
            new.mkdir(parents=True)
            write_json(new / _SCORE, values)
            link_checkpoint(checkpoint, new, omit=_SCORE)
            (self.folder / MANIFEST).unlink(missing_ok=True)  # from here on, only `new` is valid
            self.finish_replacement()
        except OSError as error:
            raise CheckpointError(
                f"{self.folder}: not written ({error.strerror}); free space or permit writing, and repeat the command"
            ) from None

    def finish_replacement(self) -> None:
        """Finish a replacement that a kill interrupted, and remove its leftovers."""
        if self._find() == self._next:
            remove_tree(self.folder)
            self._next.rename(self.folder)
        remove_tree(self._next)

    @property
    def _next(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.new")

    def _read_score(self) -> dict[str, Any]:
        if (path := self._find()) is None:
            return {}
        with suppress(OSError, ValueError):
            return read_json_file(path / _SCORE, dict, _MAX_BYTES)
        return {}
