"""State of the rollbacks of a run, in each of its checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paragan.checkpoint.reader import Checkpoint, open_verified, read_checkpoint, read_counts, restoring
from paragan.checkpoint.writer import CheckpointWriter, oldest_of_each_age
from paragan.core.errors import CheckpointError
from paragan.engine.collapse import CollapseMonitor

_MAX_IMAGES = 1 << 47
_MAX_OLDER = 3  # good checkpoints that are protected next to the newest
_COUNTS = ("count", "lost_images", "good", "good_images", "target", "trial_images", "power")


@dataclass(kw_only=True)
class RollbackState:
    """Rollbacks so far, and what the next decision depends on.

    count: number of rollbacks. lost_images: images by which they have made the run longer. good: step of the newest
    good checkpoint; -1: none. older: steps of older good ones, one for each doubling of the distance to `good`.
    good_images: images trained on at the newest good measurement. target: step to which the newest rollback has
    returned. trial_images: images up to which another collapse means that this rollback did not help. power: exponent
    of `lr_factor` in it; 0: the rates stayed. lr_factors: product of all factors so far, by player. applied:
    `last_applied` of `SkipMonitor`.
    """

    monitor: CollapseMonitor
    count: int = 0
    lost_images: int = 0
    good: int = -1
    good_images: int = 0
    target: int = 0
    trial_images: int = 0
    power: int = 0
    older: list[int] = field(default_factory=list)
    lr_factors: dict[str, float] = field(default_factory=dict)
    applied: dict[str, tuple[int, int]] = field(default_factory=dict)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the fields, as JSON values. Invalid ones raise KeyError, TypeError or ValueError."""
        vars(self).update(read_counts(values, *_COUNTS))  # the fields of these names
        self.older = [int(step) for step in values["older"]]
        self.lr_factors = {side: float(factor) for side, factor in dict(values["lr_factors"]).items()}
        applied = dict(values["applied"]).items()
        self.applied = {side: (int(due_turns), int(updates)) for side, (due_turns, updates) in applied}
        self.monitor.restore(values["monitor"])

    def note_good(self, step: int, images: int) -> None:
        """Note a good measurement, after which the checkpoint of this step is good. images: trained on so far."""
        newest = max(self.good, step)  # -1: the run has not saved since it began
        # without -1, and without `newest` itself, so that a second call with it changes nothing
        self.older = oldest_of_each_age({*self.older, self.good}, newest)[-_MAX_OLDER:]
        self.good = newest
        self.good_images = images

    def lost_after(self, images: int, checkpoint: Checkpoint, is_to_best: bool) -> int:
        """Return all images lost by a return to this checkpoint, and by those before.

        images: trained on so far. Of a return to the best score only those since the last good measurement are lost.
        What came before made the score worse slowly, and would do so again: a longer run would overfit more.
        """
        if is_to_best:
            return self.lost_images + images - self.good_images
        before: int = checkpoint.values.get("rollback", {}).get("lost_images", 0)
        trained: int = checkpoint.values["clock"]["images"]
        return before + images - trained

    def add(self, target: int, images: int, lost: int, slowed: Sequence[str], factor: float, has_helped: bool) -> None:
        """Count a rollback, lower the rates of `slowed`, and note until when another one means that it was in vain.

        images: trained on so far. lost: in all, with those of this rollback. has_helped: whether the last one has.
        """
        self.target = target
        self.count += 1
        if has_helped:
            self.power = 0
        if slowed:
            self.power = max(1, 2 * self.power)
        for side in slowed:
            self.lr_factors[side] = self.lr_factors.get(side, 1.0) * factor**self.power
        # At rates times f^power players need 1 / f^power as many images to get as far as those that were lost: a
        # collapse within twice that is the same one again.
        self.trial_images = min(int(images + 2 * (lost - self.lost_images) / factor**self.power), _MAX_IMAGES)
        self.lost_images = lost

    def fallback(self) -> int:
        """Return the newest good checkpoint that is older than the newest target, else the oldest."""
        steps = [*self.older, self.good]
        return max((step for step in steps if step < self.target), default=min(steps))


def rollback_targets(path: Path) -> list[Path]:
    """Return the folders of the older checkpoints that a run resumed from this one may return to.

    Raises `CheckpointError` if it cannot be read.
    """
    checkpoint = open_verified(path)
    saved = checkpoint.values.get("rollback")
    if saved is None:
        return []
    with restoring(checkpoint):
        steps = [saved["good"], *saved["older"]]
    older = sorted(step for step in steps if type(step) is int and 0 <= step < checkpoint.step)
    return [CheckpointWriter(folder=path.parent).path_of(step) for step in older]


def first_readable(paths: Sequence[Path], root: Path, log: Callable[[str], None]) -> str | None:
    """Return the first undamaged checkpoint, relative to the run folder; None: there is none.

    log: receives what is wrong with a damaged one.
    """
    for path in paths:
        try:
            return str(read_checkpoint(path).path.relative_to(root))
        except CheckpointError as error:
            log(str(error))
    return None
