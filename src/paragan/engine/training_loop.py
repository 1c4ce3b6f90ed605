"""Training loop: steps of a scheme and the periodic work between them, as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paragan.core.collective import run_on_all_ranks
from paragan.core.errors import CheckpointError, ConfigError, DivergedError, describe_error
from paragan.core.event import Event
from paragan.core.interrupt import StopRequested
from paragan.core.phases import Phase, phase, set_thread_clock
from paragan.core.types import Report, is_due
from paragan.engine.consistency import ConsistencyCheck
from paragan.engine.game_description import describe_data, describe_player
from paragan.engine.options import EveryOptions
from paragan.engine.saved_game import SavedGame
from paragan.engine.step_log import StepLog, sum_scalars
from paragan.evaluation.fixed_samples import FixedSamples, samples_event
from paragan.evaluation.score import Score
from paragan.game.gan import GAN
from paragan.game.loss_terms import schedule_texts
from paragan.game.player import Player
from paragan.game.prior import Prior

if TYPE_CHECKING:
    from paragan.engine.background_scores import BackgroundScores
    from paragan.evaluation.fixed_tensors import FixedTensors

_PAUSE_S = 0.1  # between two looks at a score that the end of a run waits for


@dataclass(kw_only=True)
class TrainingLoop(SavedGame):
    """Training loop of a GAN: steps of a scheme, and checkpoints, samples and scores in between.

    images: length of the run in real images. score: scores the sampling generator; None: scoring is off. stop: called
    between steps; True saves a checkpoint and ends the run. telemetry: measures the game; its period is a quarter of
    that of sheets. fixed_samples: the sample sheets; None: there are none. roles: which player trains on which rank.
    sync_period: steps after which all ranks of a player hold the same weights again (`local_sgd`). background: computes
    the scores in another process; None: training waits for them. Subclasses override parts of `run`, and `_is_best`.
    """

    images: int
    every: EveryOptions
    score: Callable[[Player, Prior], Score] | None = None
    stop: Callable[[], bool] = lambda: False
    telemetry: Callable[[GAN, Mapping[str, Tensor | float]], Mapping[str, float]] | None = None
    fixed_samples: FixedSamples | FixedTensors | None = FixedSamples()
    background: BackgroundScores | None = None
    scored_at: int = field(default=-1, init=False)  # step of the newest score
    _log: StepLog | None = field(default=None, init=False)  # from the `start` event on
    _observed_at: int = field(default=0, init=False)  # images when periods were last checked
    _sampled_at: int = field(default=-1, init=False)  # step of the newest sheet

    @property
    def is_finished(self) -> bool:
        """Whether the run has reached its length."""
        return self.clock.images >= self.images and self.is_synchronized

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished and its last score is done."""
        return self.is_finished and not self.is_score_pending

    def run(self, num_steps: int | None = None) -> Iterator[Event]:
        """Train to the end or to a stop, save a checkpoint, and score a finished run.

        Yields an event for every step, with values at log points only, and for everything else that
        happens. num_steps: train that many steps and return; a later call continues.
        """
        set_thread_clock(self.phases)
        if self._log is None:
            yield from self._begin()
            self._log = self._new_log()
            self._consistency = ConsistencyCheck(self.roles.batch_world, self.every.check_steps)
            self._observed_at = self.clock.images
        for _ in islice(count(), num_steps):
            if self.is_finished or (self.is_synchronized and self._should_stop()):
                break
            report = self.scheme.step(self.gan, self.batches)
            yield from self._log_step(report)
            if self.is_synchronized:
                self._consistency.check(self.clock, self.players)
                yield from self._run_due(report)
            if self.background is not None:
                yield from self.background.events()
        if num_steps is None:
            yield from self.end()

    def _begin(self) -> Iterator[Event]:
        yield self.event("start", self.describe())
        for text in schedule_texts(self.gan.adversarial, self.gan.penalties):
            yield self.event("event", {"text": text})
        if self.background is not None and self.world.is_main:
            yield from self.background.resume(self.clock.step)
        if self.clock.step == 0:
            yield from self._evaluate_untrained()
        elif self.is_score_pending and not self.is_finished:
            yield from self.scores()

    def _new_log(self) -> StepLog:
        return StepLog(
            scheme=self.scheme,
            roles=self.roles,
            players=self.players,
            batches=self.batches,
            log_steps=self.every.log_steps,
            phases=self.phases,
            saved=self._saved_numbers,
        )

    def _newest_numbers(self) -> Mapping[str, float]:
        return super()._newest_numbers() if self._log is None else self._log.newest_numbers()

    def _log_step(self, report: Report) -> Iterator[Event]:
        assert self._log is not None
        return self._log.events(report, is_last=self.is_finished)

    def end(self) -> Iterator[Event]:
        """Sample and save a checkpoint after the last step; score a finished run."""
        if self.is_finished:
            yield from self._sample_last()
        if self.saved_at != self.clock.step:
            yield self.save()
        if self.is_finished:
            yield from self.scores()
        else:
            yield from self._sample_last()  # after the save: what stops a run may not wait for a sheet
        self.scheme.close()
        self.batches.close()
        if self._log is not None:
            yield from self._log.last_events(self.clock)
        if self.background is not None and self.is_finished:
            yield from self._wait_for_scores(self.background)

    def release(self) -> None:
        """End the threads and the other processes of the run, finished or failed."""
        self.batches.close()
        if self.background is not None:
            self.background.process.end()

    def _wait_for_scores(self, background: BackgroundScores) -> Iterator[Event]:
        """Wait for the scores in the background, each up to its time-out, or for a stop. Collective."""
        while self.world.any(background.is_busy):
            if self.stop():
                self.is_score_pending = True
                break
            yield from background.events(is_end=True)
            time.sleep(_PAUSE_S)
        background.process.end()

    def _should_stop(self) -> bool:
        """Return whether to stop; with split players True at log points only. Collective."""
        return not (self.roles.is_split and self.clock.step % self.every.log_steps) and self.stop()

    def describe(self) -> dict[str, Any]:
        """Return the values of the `start` event: length, ranks, players, data. Collective."""
        players = {name: describe_player(player) for name, player in self.players.items()}
        return {
            "resumed": self.clock.step > 0,
            "total_kimg": self.images / 1000,
            "ranks": self.world.size,
            "players": self.roles.gather_merged(players),
            "data": describe_data(self.batches.source, self.fixed_samples, self.prior),
        }

    def _evaluate_untrained(self) -> Iterator[Event]:
        """Sample, measure and score before the first step, if the run has periods for it."""
        if self.every.sample_kimg:
            yield from self._observe(Report(step=0, images=0, scalars={}), has_sheet=True)
        if self.every.score_kimg:
            yield from self.scores()

    def _run_due(self, report: Report) -> Iterator[Event]:
        """Do the periodic work that is due after a step; `end` scores a finished run."""
        before = self._observed_at
        now = report.images
        self._observed_at = now
        if is_due(self.every.telemetry_kimg, before, now):
            self.scheme.quiesce()
            # a sheet is due only where telemetry is, whose period divides that of sheets
            yield from self._observe(report, is_due(self.every.sample_kimg, before, now))
        if is_due(self.every.score_kimg, before, now) and not self.is_finished:
            yield from self.scores()
        if is_due(self.every.save_kimg, before, now) and self.saved_at != self.clock.step:
            yield self.save()

    def _observe(self, report: Report, has_sheet: bool) -> Iterator[Event]:
        """Measure the game, and sample the generator for a sheet; ranks without G wait."""
        if has_sheet:
            yield from self._sample()
        scalars = sum_scalars(self.roles, report)
        with self.roles.others_waiting():
            if "g" in self.players and self.telemetry is not None:
                yield self.event("telemetry", self.telemetry(self.gan, scalars))

    def _sample_last(self) -> Iterator[Event]:
        if self.every.sample_kimg and self._sampled_at != self.clock.step:
            self.scheme.quiesce()
            yield from self._sample()

    def _sample(self) -> Iterator[Event]:
        """Sample the fixed latents or held-out pairs; ranks without G wait."""
        self._sampled_at = self.clock.step
        with self.roles.others_waiting():
            if "g" in self.players and self.fixed_samples is not None:
                sheet = self.fixed_samples(self.players["g"], self.prior, self.batches.source.class_names)
                yield samples_event(self.clock, sheet, self.fixed_samples.mode)

    def _scores_in_background(self, background: BackgroundScores) -> Iterator[Event]:
        """Save a checkpoint and request its score. Collective."""
        step = self.clock.step
        if self.world.any(background.has(step)):
            return
        if self.world.is_main:
            background.reserve(step)
        if self.saved_at != step:
            try:
                yield self.save()
            except CheckpointError as error:
                yield self.event("event", {"text": f"warning: the score of step {step} is skipped: {error}"})
                return
        if self.world.is_main:
            yield from background.request(self.checkpoints.path_of(step), step, self.clock.images)

    def scores(self) -> Iterator[Event]:
        """Score the sampling generator; save a checkpoint if the score is the best. Collective.

        With `background`, the score follows later, as an event of this step.
        """
        if self.score is None:
            return
        if self.background is not None:
            yield from self._scores_in_background(self.background)
            return
        self.scheme.quiesce()
        score = yield from self._score_inline()
        if self.is_score_pending:  # stopped
            return
        if self.clock.step > 0:
            yield from self._keep_if_best(score if self.world.is_main else None)

    def _score_inline(self) -> Generator[Event, None, Score | None]:
        """Score while training waits; return None on ranks without G, and where it failed or was stopped.

        Players on ranks of their own are not stopped in a score, or the ranks of D would go on alone.
        """
        score = None
        self.is_score_pending = "g" in self.players  # until it is done: after a stop, a later session scores
        with self.roles.others_waiting():
            if self.is_score_pending:
                try:
                    with phase(Phase.EVALUATION):
                        score = self.compute_score()
                except StopRequested:
                    return None
                except Exception as error:
                    if not self._may_continue(error):
                        raise
                    text = f"the score of step {self.clock.step} failed: {describe_error(error)}; training continues"
                    yield self.event("event", {"text": f"warning: {text}"})
                self.is_score_pending = False
            if score is not None:
                values = {**score.values, "evaluation_mode": "inline"}
                yield replace(self.event("score", values), repeat_s=score.seconds)
        self.scored_at = self.clock.step
        return score

    def _keep_if_best(self, main_score: Score | None) -> Iterator[Event]:
        """Keep the checkpoint if rank 0 has the best score. main_score: on rank 0. Collective."""
        is_best_by_rank = run_on_all_ranks(self.world, lambda: main_score is not None and self._is_best(main_score))
        if is_best_by_rank[0]:
            if self.saved_at != self.clock.step:
                yield self.save()
            run_on_all_ranks(self.world, lambda: None if main_score is None else self._update_best(main_score))

    def _may_continue(self, error: Exception) -> bool:
        """Return whether training continues after an error of a score, which belongs to the score alone."""
        if isinstance(error, DivergedError):
            return False
        # on several ranks only an error that all of them raise: the others would wait for this one
        return self.world.size == 1 or isinstance(error, ConfigError)

    def _is_best(self, score: Score) -> bool:
        return self.best.is_beaten_by(score)

    def _update_best(self, score: Score) -> None:
        self.best.update(self.checkpoints.path_of(self.clock.step), self.clock.step, self.clock.images, score)

    def compute_score(self, prior: Prior | None = None) -> Score:
        """Score the sampling generator. prior: of the latents; None: the run's."""
        assert self.score is not None
        return self.score(self.players["g"], prior or self.prior)
