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
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.score import Score


@dataclass(kw_only=True)
class RollbackLoop(TrainingLoop):
    """Training loop that returns the players to a good checkpoint when training collapses.

    A collapse is a `DivergedError`, or a sign that lasts (`CollapseMonitor`). Steps, images and data continue: other
    batches follow, and the run gets longer by what was lost. Learning rates are lowered, but at the first rollback
    not for a sign that a single batch can cause. If a rollback has not helped, the next one returns to an older
    checkpoint and lowers the rates more. Rank 0 decides.
    """

    rollback: RollbackOptions

    def __post_init__(self) -> None:
        self._state = RollbackState(monitor=CollapseMonitor(patience=self.rollback.patience))
        self._measured_at = -1  # step of the newest telemetry or score
        self._saved_before = -1  # step of the newest checkpoint at that time
        self._returned_at = -1  # step of the newest rollback in this session
        self._diverged = ""  # why the run rolls back at the next step at which all ranks agree
        self._length = self.images  # as configured
        self._lr = {name: player.policy.lr for name, player in self.players.items()}

    def _begin(self) -> Iterator[Event]:
        """Save a first checkpoint, and make a rollback that a kill has prevented."""
        yield from self._watched(super()._begin, is_measured=True)
        if self._state.good < 0:
            yield self.save()  # else a collapse before the first period has nothing to return to
        yield from self._decide()  # a run that was killed within a rollback still shows the sign

    def _log_step(self, report: Report) -> Iterator[Event]:
        assert self._log is not None
        # updates that were skipped before a kill count, too: the checkpoint has them; from then on both are one dict
        self._log.skips.last_applied |= self._state.applied
        yield from self._watched(partial(super()._log_step, report))
        self._state.applied = self._log.skips.last_applied

    def _run_due(self, report: Report) -> Iterator[Event]:
        if self.roles.is_split and self._returned_at == self.clock.step:
            self._observed_at = report.images  # opponents' states arrive with the next step
            return  # a checkpoint is written; sheets and scores come with the next period
        before = self._observed_at
        periods = (self.every.telemetry_kimg, self.every.score_kimg)
        is_measured = any(is_due(kimg, before, report.images) for kimg in periods)
        yield from self._watched(partial(super()._run_due, report), is_measured)

    def end(self) -> Iterator[Event]:
        """End the run, unless a rollback makes it longer."""
        count = self._state.count
        yield from self._watched(super().end, is_measured=True)
        if self._state.count > count:
            yield from self.run()

    def _watched(self, work: Callable[[], Iterator[Event]], is_measured: bool = False) -> Iterator[Event]:
        """Yield the events of `work`, and roll back if it diverges or they show a collapse.

        is_measured: whether it measures the game; ranks without G have no event of it.
        """
        # before the events, as ranks without G have none: a collective must not depend on them
        merged = self.roles.gather_merged(self._moment_ratios()) if self.roles.is_split and is_measured else None
        try:
            for event in work():
                if event.kind == "telemetry":
                    ratios = self._moment_ratios() if merged is None else merged
                    event = replace(event, values={**event.values, **ratios})
                if event.kind in ("telemetry", "score"):
                    self._measure(event)
                yield event
        except DivergedError as error:  # on all ranks
            self._diverged = str(error)
        if self._diverged:
            # under local_sgd the ranks differ until they average; the reason waits for that step
            if self.is_synchronized:
                yield from self._roll_back(DIVERGED, self._diverged)
            return
        # rank 0 decides, and may have no event of its own
        if self.roles.is_split and is_measured:
            self._measured_at = self.world.all_reduce_max(self._measured_at)
        if self._measured_at == self.clock.step:
            yield from self._decide()

    def _moment_ratios(self) -> dict[str, float]:
        ratios = {name: moment_ratio(player.optimizer) for name, player in self.players.items()}
        return {f"{name}/moment_ratio": ratio for name, ratio in ratios.items() if ratio is not None}

    def _measure(self, event: Event) -> None:
        self._state.monitor.observe(event)
        # telemetry and score of one step judge the same checkpoint: the newest before the first of them
        if self._measured_at != event.step:
            self._saved_before = self.saved_at
        self._measured_at = event.step

    def _decide(self) -> Iterator[Event]:
        """Roll back if a sign lasts, else note the newest good checkpoint. Collective."""
        collapse = run_on_main(self.world, self._state.monitor.collapse)
        is_last = self._state.count >= self.rollback.max_rollbacks
        if collapse is not None and not (is_last and collapse[0] == PAST_BEST):  # slow: no reason to end a run
            yield from self._roll_back(*collapse)
        elif self._state.good >= 0:
            self._note_good()

    def _is_best(self, score: Score) -> bool:
        """Return whether this is the best score, of a run without a sign of a collapse."""
        return self._state.monitor.is_clean and super()._is_best(score)

    def _with_newest_good(self) -> RollbackState:
        """Return the state with the newest checkpoint that a good measurement has followed."""
        good = self._state.good
        images = self._state.good_images
        if self._measured_at == self.clock.step and self._state.monitor.is_clean:
            good = max(good, self._saved_before)
            images = self.clock.images
        if good < 0:
            good = self.clock.step  # the first checkpoint, which is being saved, counts as good
        return self._state.with_good(good, images)

    def _note_good(self) -> None:
        self._state = self._with_newest_good()
        self.checkpoints.protected.clear()
        self.checkpoints.protected.update((self._state.good, *self._state.older))

    def save(self) -> Event:
        """Write a checkpoint; the first one counts as good."""
        event = super().save()
        self._note_good()
        return event

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """Return the state for a checkpoint, with that of the rollbacks."""
        groups, values = super().state()
        local = {name: counts for name, counts in self._state.applied.items() if name in self.players}
        applied = self.roles.gather_merged(local)
        saved = replace(self._with_newest_good(), applied=applied)
        return groups, {**values, "rollback": asdict(saved)}

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Restore this checkpoint, with the learning rates and the length of the run."""
        super().resume_from(checkpoint)
        if (saved := checkpoint.values.get("rollback")) is not None:  # else saved without
            with restoring(checkpoint):
                self._state.restore(saved)
            self._note_good()
            self._apply_state()

    def _apply_state(self) -> None:
        self.images = self._length + self._state.lost_images
        for name, player in self.players.items():
            player.set_lr_base(self._lr[name] * self._state.lr_factors.get(name, 1.0))

    def _roll_back(self, name: str, reason: str) -> Iterator[Event]:
        """Restore the players, lower learning rates, and save that as this step. Collective.

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
        has_helped = name != PAST_BEST and self.clock.images > self._state.trial_images
        is_to_best = name == PAST_BEST or (name == SCORE_DIVERGES and has_helped)
        good = self.checkpoints.path_of(self._state.good if has_helped else self._state.fallback())
        checkpoint = self._open_good([self.best.folder, good] if is_to_best else [good], reason)
        self.scheme.quiesce()  # no turn is under way while the weights are replaced
        if self._log is not None:
            yield from self._log.delay_events(self.clock)  # of the session that ends here
        run_on_all_ranks(self.world, partial(self._restore_players, checkpoint))
        self.scheme.close()  # the next step begins with the states of these players, as a resume
        lost = run_on_main(self.world, partial(self._lost_images, checkpoint, is_to_best))
        slowed = self._slowed(name)
        self._state.add(checkpoint.step, self.clock.images, lost, slowed, self.rollback.lr_factor, has_helped)
        self._apply_state()
        self._forget(is_to_best)
        yield self._rollback_event(checkpoint.step, name, reason)
        # A kill before this save repeats the rollback, as the checkpoint it resumes from shows the same
        # sign; after it, the run resumes with the players and the rates of the rollback.
        yield self.save()

    def _slowed(self, name: str) -> Sequence[str]:
        """Return the players whose rates the next rollback lowers; none if it is the first, for a sign of one batch."""
        if name in OF_ONE_BATCH and not self._state.count:
            return ()
        return SLOWED.get(name, tuple(side.value for side in self.gan.slots))

    def _lost_images(self, checkpoint: Checkpoint, is_to_best: bool) -> int:
        """Return all lost images; of a return to the best score those since the last good measurement.

        What was trained before that made it worse slowly, and counts as trained.
        """
        if is_to_best:
            return self._state.lost_images + self.clock.images - self._state.good_images
        before: int = checkpoint.values.get("rollback", {}).get("lost_images", 0)
        trained: int = checkpoint.values["clock"]["images"]
        return before + self.clock.images - trained

    def _restore_players(self, checkpoint: Checkpoint) -> None:
        with restoring(checkpoint):
            self.restore(checkpoint)

    def _forget(self, is_to_best: bool) -> None:
        """Begin all counts anew; the next checkpoint is as good as the one that was restored."""
        self._state.monitor.restart(is_to_best)
        self._state.applied = {}
        self._measured_at = self.clock.step
        self._saved_before = self.clock.step
        self._returned_at = self.clock.step
        self._diverged = ""
        self.is_score_pending = False
        if self._log is not None:
            self._log.skips = SkipMonitor(self.players, self.world, self.batches.source)
            self._log.forget(self._saved_numbers)

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
