"""Training loop that returns to a good checkpoint when training collapses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paragan.checkpoint.reader import Checkpoint, open_verified, restoring
from paragan.core.collective import run_on_all_ranks, run_on_main
from paragan.core.errors import DivergedError
from paragan.core.event import Event
from paragan.core.layout import Pieces, local_shard
from paragan.core.types import Report, is_due
from paragan.engine.collapse import DIVERGED, OF_ONE_BATCH, PAST_BEST, SLOWED, CollapseMonitor
from paragan.engine.divergence import SkipMonitor
from paragan.engine.options import RollbackOptions
from paragan.engine.rollback_state import RollbackState, first_readable
from paragan.engine.signs import SCORE_DIVERGES
from paragan.engine.step_log import StepLog
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.score import Score


@dataclass(kw_only=True)
class RollbackLoop(TrainingLoop):
    """Training loop that returns the players to a good checkpoint when training collapses.

    A collapse is a `DivergedError`, or a sign that lasts (`CollapseMonitor`). Steps, images and data continue: other
    batches follow, and the run gets longer by what was lost. Learning rates are lowered, but at the first rollback
    not for a sign that a single batch can cause. If a rollback has not helped, the next one returns to an older
    checkpoint and lowers the rates more.

    Every part of the loop runs in `_watched`, which measures, and ends in `_decide` or `_roll_back`. Rank 0 decides:
    of `RollbackState`, ranks without G have an incomplete `monitor` and good checkpoints, which they do not use.
    """

    rollback: RollbackOptions

    def __post_init__(self) -> None:
        self._state = RollbackState(monitor=CollapseMonitor(patience=self.rollback.patience))
        self._measured_at = -1  # step of the newest telemetry or score
        self._saved_before = -1  # step of the newest checkpoint before the first of that step
        self._divergence = ""  # text of the error after which the run rolls back, once all ranks can; empty: none
        self._length = self.images  # as configured
        self._lr = {name: player.policy.lr for name, player in self.players.items()}

    def _begin(self) -> Iterator[Event]:
        """Save a first checkpoint, and make a rollback that a kill has prevented."""
        yield from self._watched(super()._begin, may_measure=True)
        if self._state.good < 0:
            yield self.save()  # else a collapse before the first period has nothing to return to
        yield from self._decide()  # a run that was killed within a rollback still shows the sign

    def _new_log(self) -> StepLog:
        log = super()._new_log()
        log.skips.last_applied |= self._state.applied  # updates that were skipped before a kill count, too
        return log

    def _log_step(self, report: Report) -> Iterator[Event]:
        yield from self._watched(partial(super()._log_step, report))

    def _run_due(self, report: Report) -> Iterator[Event]:
        before = self._observed_at
        periods = (self.every.telemetry_kimg, self.every.score_kimg)
        may_measure = any(is_due(kimg, before, report.images) for kimg in periods)
        yield from self._watched(partial(super()._run_due, report), may_measure)

    def end(self) -> Iterator[Event]:
        """End the run, unless a rollback makes it longer."""
        count = self._state.count
        yield from self._watched(super().end, may_measure=True)
        if self._state.count > count:
            yield from self.run()

    def _watched(self, work: Callable[[], Iterator[Event]], may_measure: bool = False) -> Iterator[Event]:
        """Yield the events of a part of the loop, then roll back if it diverged, or decide if it measured the game.

        may_measure: whether it may, on any rank. Collectives depend on this alone: ranks without G have no events.
        """
        ratios = self.roles.gather_merged(self._moment_ratios()) if may_measure else {}
        has_measured = False
        try:
            for event in work():
                if event.kind == "telemetry":
                    event = replace(event, values={**event.values, **ratios})
                if event.kind in ("telemetry", "score"):
                    self._measure(event)
                    has_measured = True
                yield event
        except DivergedError as error:  # on all ranks
            self._divergence = str(error)
        if self._divergence:
            # under local_sgd the ranks differ until they average; the rollback waits for that step
            if self.is_synchronized:
                yield from self._roll_back(DIVERGED, self._divergence)
        elif may_measure and self.world.any(has_measured):
            yield from self._decide()

    def _moment_ratios(self) -> dict[str, float]:
        ratios = {name: moment_ratio(player.optimizer) for name, player in self.players.items()}
        return {f"{name}/moment_ratio": ratio for name, ratio in ratios.items() if ratio is not None}

    def _measure(self, event: Event) -> None:
        self._state.monitor.observe(event)
        # telemetry and score of one step judge the same checkpoint, also if one is saved between them
        if self._measured_at != event.step:
            self._saved_before = self.saved_at
        self._measured_at = event.step

    def _decide(self) -> Iterator[Event]:
        """Roll back if a sign lasts, else note the newest good checkpoint. Collective."""
        collapse = run_on_main(self.world, self._state.monitor.collapse)
        is_last = self._state.count >= self.rollback.max_rollbacks
        # the collapse after the last rollback ends the run; getting worse slowly is no reason for that
        if collapse is not None and not (is_last and collapse[0] == PAST_BEST):
            yield from self._roll_back(*collapse)
        elif self._state.good >= 0:  # else the first checkpoint follows
            self._note_good()

    def _is_best(self, score: Score) -> bool:
        """Return whether this is the best score, of a run without a sign of a collapse."""
        return self._state.monitor.is_clean and super()._is_best(score)

    def _note_good(self) -> None:
        """Note the newest checkpoint that a good measurement has followed; a second call at a step changes nothing."""
        if self._measured_at == self.clock.step and self._state.monitor.is_clean:
            self._state.note_good(self._saved_before, self.clock.images)
        self._protect_good()

    def _protect_good(self) -> None:
        self.checkpoints.protected.clear()
        self.checkpoints.protected.update((self._state.good, *self._state.older))

    def save(self) -> Event:
        """Write a checkpoint; the first one counts as good."""
        if self._state.good < 0:
            self._state.note_good(self.clock.step, self.clock.images)
        self._note_good()  # before it is written: it names the good ones, and none of these may be pruned by it
        return super().save()

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """Return the state for a checkpoint, with that of the rollbacks."""
        groups, values = super().state()
        applied = self._state.applied if self._log is None else self._log.skips.last_applied
        local = {name: counts for name, counts in applied.items() if name in self.players}
        saved = replace(self._state, applied=self.roles.gather_merged(local))
        return groups, {**values, "rollback": asdict(saved)}

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Restore this checkpoint, with the learning rates and the length of the run."""
        super().resume_from(checkpoint)
        if (saved := checkpoint.values.get("rollback")) is not None:  # else saved without
            with restoring(checkpoint):
                self._state.restore(saved)
            self._protect_good()
            self._apply_state()

    def _apply_state(self) -> None:
        self.images = self._length + self._state.lost_images
        for name, player in self.players.items():
            player.set_lr_base(self._lr[name] * self._state.lr_factors.get(name, 1.0))

    def _roll_back(self, name: str, reason: str) -> Iterator[Event]:
        """Return to the players of a good checkpoint, at lower rates, and save that as this step. Collective.

        | sign           | the last rollback helped, or there was none      | it was in vain                         |
        |----------------|--------------------------------------------------|----------------------------------------|
        | PAST_BEST      | (does not occur: the run only got worse)         | to the best score, or an older good one |
        | SCORE_DIVERGES | to the best score, or the newest good checkpoint | to an older good one                   |
        | others         | to the newest good checkpoint                    | to an older good one                   |

        Raises `DivergedError` after `max_rollbacks`, or if no good checkpoint can be read.
        """
        limit = self.rollback.max_rollbacks
        if self._state.count >= limit:
            raise DivergedError(
                f"step {self.clock.step}: another collapse after {limit} rollbacks (rollback.max_rollbacks): {reason}"
            )
        images = self.clock.images
        # 1. Choose the checkpoint. A collapse soon after a rollback is the same one: that rollback was in vain.
        has_helped = name != PAST_BEST and images > self._state.trial_images
        is_to_best = name == PAST_BEST or (name == SCORE_DIVERGES and has_helped)
        good = self.checkpoints.path_of(self._state.good if has_helped else self._state.fallback())
        checkpoint = self._open_good([self.best.folder, good] if is_to_best else [good], reason)
        # 2. Replace the players: an error up to here leaves the run as it was.
        yield from self._replace_players(checkpoint)
        # 3. Count it.
        slowed = self._slowed(name)  # before `add`, which counts this rollback
        # before `note_good`, which is another good measurement; by rank 0, which alone knows the last one
        lost = run_on_main(self.world, partial(self._state.lost_after, images, checkpoint, is_to_best))
        self._state.add(checkpoint.step, images, lost, slowed, self.rollback.lr_factor, has_helped)
        self._state.note_good(self.clock.step, images)  # the checkpoint that is saved below: of good players
        self._state.monitor.restart(is_to_best)
        self._divergence = ""
        self._apply_state()  # after `add`, and before the event, which has the new length
        # 4. Record and save it. A kill before the save repeats the rollback, as the checkpoint it resumes from shows
        # the same sign; after it, the run resumes with the players and the rates of the rollback.
        yield self._rollback_event(checkpoint.step, name, reason)
        yield self.save()

    def _replace_players(self, checkpoint: Checkpoint) -> Iterator[Event]:
        """Restore the players, and begin anew what depends on the updates since then. Collective."""
        self.scheme.quiesce()  # no turn is under way while the weights are replaced
        if self._log is not None:
            yield from self._log.delay_events(self.clock)  # of the scheme's session, before that is closed
        run_on_all_ranks(self.world, partial(self.restore, checkpoint))
        self.scheme.close()  # the next step opens a session, which begins with the states of these players
        self.is_score_pending = False  # that score was of other players
        self._state.applied = {}
        if self._log is not None:  # after the restoring: skips are counted from the restored counters
            self._log.skips = SkipMonitor(self.players, self.world, self.batches.source)
            self._log.forget(self._saved_numbers)
        if self.roles.is_split:
            # the states of opponents arrive with the next step: sheets and scores that are due now are left out
            self._observed_at = self.clock.images

    def _slowed(self, name: str) -> Sequence[str]:
        """Return the players whose rates the next rollback lowers; none if it is the first, for a sign of one batch."""
        if name in OF_ONE_BATCH and not self._state.count:
            return ()
        return SLOWED.get(name, tuple(side.value for side in self.gan.slots))

    def _open_good(self, paths: list[Path], reason: str) -> Checkpoint:
        """Open the first readable one of these checkpoints. Collective."""
        folder = self.best.folder.parent
        # rank 0 chooses: with another choice on another rank the ranks would train different players
        readable = run_on_main(self.world, partial(first_readable, paths, folder, self.checkpoints.log))
        if readable is None:
            raise DivergedError(f"step {self.clock.step}: no good checkpoint to roll back to: {reason}")
        opened: list[Checkpoint] = []  # of this rank: results of `run_on_all_ranks` are sent, and this one is large
        run_on_all_ranks(self.world, lambda: opened.append(open_verified(folder / readable)))
        return opened[0]

    def _rollback_event(self, step: int, name: str, reason: str) -> Event:
        which = f"{self._state.count} of {self.rollback.max_rollbacks}, to the players of step {step}"
        factors = dict(self._state.lr_factors)
        rates = ", ".join(f"{side} x {factor:g}" for side, factor in factors.items()) or "unchanged"
        text = f"rollback {which}; learning rates {rates}. Reason: {reason}"
        facts = {"name": name, "to_step": step, "count": self._state.count, "lr_factors": factors}
        facts["lost_images"] = self._state.lost_images
        return self.event("event", {"text": text, "rollback": facts, "total_kimg": self.images / 1000})


def moment_ratio(optimizer: Any) -> float | None:
    """Return the norm of Adam's first moment over that of the root of its second, of local weights.

    About 1 without momentum, less with it. Towards 0: a past gradient was far larger than all that followed, so the
    weights hardly change until it is forgotten (1 / (1 - beta2) updates for each factor of 1.6). None: no such moments.
    """
    states = [state for state in optimizer.state.values() if "exp_avg_sq" in state]
    first = sum(float(local_shard(state["exp_avg"]).float().square().sum()) for state in states)
    second = sum(float(local_shard(state["exp_avg_sq"]).float().sum()) for state in states)
    return (first / second) ** 0.5 if second > 0 else None
