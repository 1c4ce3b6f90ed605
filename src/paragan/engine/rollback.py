"""Training loop that returns to a good checkpoint when training collapses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from paragan.checkpoint.reader import Checkpoint, open_verified, read_checkpoint, read_counts, restoring
from paragan.core.collective import run_on_all_ranks, run_on_main
from paragan.core.errors import CheckpointError, DivergedError
from paragan.core.event import Event
from paragan.core.pieces import Pieces
from paragan.core.types import Report
from paragan.engine.collapse import DIVERGED_SCORE, SLOWED, CollapseMonitor
from paragan.engine.divergence import SkipMonitor
from paragan.engine.options import RollbackOptions
from paragan.engine.training_loop import TrainingLoop


@dataclass
class _RollbackState:
    """What a checkpoint holds of the rollbacks so far.

    good: step of the newest good checkpoint; -1: none. lost_images: that are trained again. applied:
    version and finite updates at the last update that was applied, by player.
    """

    count: int = 0
    lost_images: int = 0
    good: int = -1
    lr_factors: dict[str, float] = field(default_factory=dict)
    applied: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> _RollbackState:
        """Return the state in a checkpoint. Invalid values raise KeyError, TypeError or ValueError."""
        factors = {side: float(factor) for side, factor in values["lr_factors"].items()}
        applied = {side: (int(version), int(count)) for side, (version, count) in values["applied"].items()}
        return cls(**read_counts(values, "count", "lost_images", "good"), lr_factors=factors, applied=applied)


@dataclass(kw_only=True)
class RollbackLoop(TrainingLoop):
    """Training loop that returns the players to a good checkpoint when training collapses.

    A collapse is a `DivergedError`, or a sign that lasts (`CollapseMonitor`). Steps, images and data
    continue, so other batches follow, and the run gets longer by the lost images. Rank 0 decides.
    """

    rollback: RollbackOptions

    def __post_init__(self) -> None:
        self._state = _RollbackState()
        self._monitor = CollapseMonitor(self.rollback.patience)
        self._measured_at = -1  # step of the newest telemetry or score
        self._saved_before = -1  # step of the newest checkpoint at that time
        self._length = self.images  # as configured
        self._lr = {name: player.policy.lr for name, player in self.players.items()}

    def _begin(self) -> Iterator[Event]:
        """Save a first checkpoint, and finish a rollback that a kill interrupted."""
        yield from self._watched(super()._begin)
        if self._state.good < 0:
            yield self.save()
        yield from self._decide()

    def _log_step(self, report: Report) -> Iterator[Event]:
        assert self._log is not None
        self._log.skips.applied |= self._state.applied
        yield from self._watched(partial(super()._log_step, report))
        self._state.applied = self._log.skips.applied

    def _run_due(self, report: Report) -> Iterator[Event]:
        yield from self._watched(partial(super()._run_due, report))

    def end(self) -> Iterator[Event]:
        """End the run; a rollback at its end makes it longer."""
        count = self._state.count
        yield from self._watched(super().end)
        if count != self._state.count:
            yield from self.run()

    def save(self) -> Event:
        """Write a checkpoint; the first one is good."""
        event = super().save()
        self._set_good(self._newest_good())
        return event

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """Return the state for a checkpoint, with that of the rollbacks."""
        groups, values = super().state()
        monitor = {"bad": self._monitor.bad, "best": self._monitor.best}
        return groups, {**values, "rollback": {**asdict(self._state), **monitor, "good": self._newest_good()}}

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Restore this checkpoint, with the learning rates and the length after its rollbacks."""
        super().resume_from(checkpoint)
        if (saved := checkpoint.values.get("rollback")) is None:  # saved without `rollback`
            return
        with restoring(checkpoint):
            self._state = _RollbackState.from_json(saved)
            self._monitor.bad = read_counts(saved["bad"], *saved["bad"])
            self._monitor.best = {name: float(value) for name, value in saved["best"].items()}
        self._set_good(self._state.good)
        self._apply_state()

    def _watched(self, work: Callable[[], Iterator[Event]]) -> Iterator[Event]:
        """Yield the events of `work`, and roll back if it diverges or they show a collapse."""
        try:
            for event in work():
                if event.kind in ("telemetry", "score"):
                    self._monitor.observe(event)
                    if self._measured_at != event.step:
                        self._saved_before = self.saved_at
                    self._measured_at = event.step
                yield event
        except DivergedError as error:
            yield from self._roll_back("diverged", str(error))
            return
        if self._measured_at == self.clock.step:
            yield from self._decide()

    def _decide(self) -> Iterator[Event]:
        """Roll back if a sign lasts, else note the newest good checkpoint. Collective."""
        found = run_on_main(self.world, self._monitor.collapse)
        if found is not None:
            yield from self._roll_back(*found)
        elif self._state.good >= 0:
            self._set_good(self._newest_good())

    def _newest_good(self) -> int:
        """Return the step of the newest good checkpoint: a good measurement has followed it."""
        good = self._state.good
        if self._measured_at == self.clock.step and self._monitor.is_clean:
            good = max(good, self._saved_before)
        return self.clock.step if good < 0 else good

    def _set_good(self, step: int) -> None:
        self._state.good = step
        self.checkpoints.protected.clear()
        self.checkpoints.protected.add(step)

    def _roll_back(self, name: str, reason: str) -> Iterator[Event]:
        """Restore the players, lower learning rates, and save that as this step. Collective.

        Raises `DivergedError` after `max_rollbacks`, or if no good checkpoint can be read.
        """
        most = self.rollback.max_rollbacks
        if self._state.count >= most:
            problem = f"collapse after {most} rollbacks, the most that rollback.max_rollbacks allows"
            raise DivergedError(f"step {self.clock.step}: {problem}: {reason}")
        checkpoint = self._open_good(name, reason)
        run_on_all_ranks(self.world, partial(self._restore_players, checkpoint))
        self._state.count += 1
        lost_before = checkpoint.values.get("rollback", {}).get("lost_images", 0)
        self._state.lost_images = lost_before + self.clock.images - checkpoint.values["clock"]["images"]
        for side in SLOWED.get(name, ("g", "d")):
            self._state.lr_factors[side] = self._state.lr_factors.get(side, 1.0) * self.rollback.lr_factor
        self._apply_state()
        self._forget()
        yield self._rollback_event(checkpoint.step, name, reason)
        yield self.save()

    def _restore_players(self, checkpoint: Checkpoint) -> None:
        with restoring(checkpoint):
            self.restore(checkpoint)

    def _forget(self) -> None:
        """Begin all counts anew, and count this step as good: it is what a good one was."""
        self._monitor.bad.clear()
        self._measured_at = self.clock.step
        self._saved_before = self.clock.step
        self.is_score_pending = False
        self._state.applied = {}
        if self._log is not None:
            self._log.skips = SkipMonitor(self.players)

    def _apply_state(self) -> None:
        """Set the length of the run and the learning rates by the state."""
        self.images = self._length + self._state.lost_images
        for name, player in self.players.items():
            player.set_lr_base(self._lr[name] * self._state.lr_factors.get(name, 1.0))

    def _open_good(self, name: str, reason: str) -> Checkpoint:
        """Open the best checkpoint if the score diverges, else the newest good one. Collective."""
        folder = self.best.folder.parent
        good = self.checkpoints.path_of(self._state.good)
        paths = [self.best.folder, good] if name == DIVERGED_SCORE else [good]

        def find() -> str | None:
            for path in paths:
                try:
                    return str(read_checkpoint(path).path.relative_to(folder))
                except CheckpointError as error:
                    self.checkpoints.say(str(error))
            return None

        found = run_on_main(self.world, find)
        if found is None:
            raise DivergedError(f"step {self.clock.step}: no good checkpoint to roll back to: {reason}")
        opened: list[Checkpoint] = []
        run_on_all_ranks(self.world, lambda: opened.append(open_verified(folder / found)))
        return opened[0]

    def _rollback_event(self, step: int, name: str, reason: str) -> Event:
        state = self._state
        rates = ", ".join(f"{side} x {factor:g}" for side, factor in state.lr_factors.items())
        which = f"rollback {state.count} of {self.rollback.max_rollbacks}"
        text = f"{which}, to the players of step {step}; learning rates {rates}. Reason: {reason}"
        values = {"name": name, "to_step": step, "count": state.count, "lr_factors": dict(state.lr_factors)}
        return self.event("event", {"text": text, "rollback": values, "total_kimg": self.images / 1000})
