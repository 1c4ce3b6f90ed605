"""Tuning: trials of a recipe with other settings, each a run in a folder of its own, by their scores."""

import gc
import io
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from paragan.build.data import generates_images
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.dist import World
from paragan.core.errors import (
    PREEMPTED,
    ConfigError,
    DivergedError,
    ParaganError,
    PeerFailedError,
    is_out_of_memory,
    outcome,
)
from paragan.core.files import create_subfolder, link_or_copy, open_to_append
from paragan.core.interrupt import Interrupt
from paragan.core.metric import Direction
from paragan.core.network_factory import Model
from paragan.distributed.launch.rank_env import RankEnv
from paragan.evaluation.chosen_metrics import DEFAULTS
from paragan.extensions.tuning.results import trial_line
from paragan.extensions.tuning.space import Dimension, Value, trial_words
from paragan.extensions.tuning.study import Study, StudyPlan, TrialRecord
from paragan.features.inception import PUBLISHED_NAMES
from paragan.report.record import open_record
from paragan.report.run_state import format_duration
from paragan.runs.run_request import RunRequest
from paragan.runs.session import end_session, open_session, record_failure

Log = Callable[[str], None]
Configure = Callable[[Sequence[str]], RunConfig]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A study to run on the ranks of `world`.

    configure: returns the config of a trial for `key=value` words. folder: of the study, with the
    run folders in `trials`. model: networks from memory, instead of the config's.
    """

    plan: StudyPlan
    configure: Configure
    folder: Path
    world: World
    place: RankEnv | None = None
    model: Model | None = None

    def request(self, number: int, values: Mapping[str, Value]) -> RunRequest:
        """Return the run of a trial."""
        config = self.configure([*trial_words(values), f"train.kimg={self.plan.kimg}"])
        folder = create_subfolder(self.folder, "trials") / str(number)
        return RunRequest(config=config, name=self.plan.recipe, out=folder, place=self.place, model=self.model)


def goal_direction(config: RunConfig, goal: str, model: Model | None = None) -> Direction:
    """Return which scores of a metric are better. `ConfigError`: a run has no such score to rank."""
    key = "features" if generates_images(config, model) else "metrics"
    if getattr(config.evaluation, key) is None:
        raise ConfigError(f"tune compares scores, and evaluation.{key}=null switches them off; set evaluation.{key}")
    known = registry.names("metrics")
    if goal not in known:
        hint = registry.did_you_mean(registry.closest_name(goal, known)) or f"; choose one of {', '.join(known)}"
        raise ConfigError(f"goal {goal} is not a metric{hint}")
    metric = registry.load_module("metrics", goal).Metric
    if metric.direction == Direction.NEITHER:
        raise ConfigError(f"goal {goal}: neither high nor low values are better; choose another metric, such as fd")
    chosen = config.evaluation.metrics
    scored = list(chain.from_iterable(DEFAULTS.values())) if chosen is None else [choice.name for choice in chosen]
    if goal not in scored:
        raise ConfigError(f"goal {goal} is not among the scores of this recipe; add it to evaluation.metrics")
    return metric.direction


def check_trials(configure: Configure, dimensions: Sequence[Dimension]) -> None:
    """Raise `ConfigError` for an invalid value of a dimension, and for what trials cannot train."""
    values = {dimension.key: dimension.extremes[0] for dimension in dimensions}
    for dimension in dimensions:
        for extreme in dimension.extremes:
            config = configure(trial_words(values | {dimension.key: extreme}))
            if config.grid is not None:
                raise ConfigError("tune trains pairs of networks, and a grid varies its cells itself; leave grid out")


def tune(tuning: Tuning, interrupt: Interrupt, log: Log) -> list[TrialRecord]:
    """Run trials until enough have ended; return them on rank 0. Collective.

    A trial that diverges or fails is recorded and does not end the study. The next call continues an
    interrupted one, and tries a failed one again. Raises `ParaganError` for what the user must change.
    """
    study = Study(tuning.plan, tuning.folder) if tuning.world.is_main else None
    began = time.monotonic()
    num_ended = 0  # by this process
    try:
        while (started := tuning.world.gather(None if study is None else study.start())[0]) is not None:
            number, values = started
            trial = _Trial(tuning=tuning, study=study, interrupt=interrupt, number=number, values=values)
            trial.train()
            if tuning.world.any(interrupt.requested):
                break
            if study is not None:
                study.end(trial.state, trial.value, trial.reason)
                num_ended += 1
                trials = study.ended()
                left_s = (time.monotonic() - began) / num_ended * (tuning.plan.max_trials - len(trials))
                eta = f"; about {format_duration(left_s)} left" if left_s else ""
                log(trial_line(tuning.plan, trials, trial.number) + eta)
            gc.collect()  # the networks of a trial refer to each other
        if study is not None and study.num_running and not interrupt.requested:
            running = "1 trial is" if study.num_running == 1 else f"{study.num_running} trials are"
            log(f"{running} still running elsewhere; the same command prints all results once they have ended")
        return [] if study is None else study.ended()
    finally:
        if study is not None:
            study.close()


@dataclass(kw_only=True)
class _Trial:
    """A run of a study. study: on rank 0. state, value, reason: what became of it."""

    tuning: Tuning
    study: Study | None
    interrupt: Interrupt
    number: int
    values: Mapping[str, Value]
    state: str = "failed"
    value: float | None = None
    reason: str = ""
    is_pruned: bool = False
    reported: set[int] = field(default_factory=set)  # numbers of scores before the end

    def train(self) -> None:
        """Train in the run folder, from its newest checkpoint if any. Collective.

        What the run prints is in a log.
        """
        # several ranks: only errors that every rank raises; after others, the program's `share_failures` frees the rest
        failures = (Exception,) if self.tuning.world.size == 1 else (DivergedError, PeerFailedError)
        log = open_to_append(create_subfolder(self.tuning.folder, "logs") / f"{self.number}.log")
        with io.TextIOWrapper(log, encoding="utf-8", line_buffering=True) as file:
            try:
                self._train_in_folder(file)
            except failures as error:
                traceback.print_exc(file=file)
                _, line = outcome(error)
                if _is_of_study(error):
                    raise ParaganError(f"trial {self.number}: {line}") from error
                self.state = "pruned" if isinstance(error, DivergedError) else "failed"
                self.reason = (line or f"{type(error).__name__}: {error}").partition("\n")[0][:300]

    def _train_in_folder(self, log: TextIO) -> None:
        tuning = self.tuning
        with redirect_stdout(log), redirect_stderr(log):
            request = tuning.request(self.number, self.values)
            if self.study is not None:
                _link_judge(request.out)
            with open_session(request, tuning.world, self._must_stop) as session:
                with record_failure(session):  # which ends it on the other ranks
                    self._report_recorded(request)
                if not session.is_complete:
                    with record_failure(session):
                        for event in session.trainer.run():
                            session.write(event)
                            if event.kind == "score" and self.study is not None:
                                self._report(request.config, event.images / 1000, event.values)
                    is_complete = session.trainer.is_complete
                    end_session(session, 0 if is_complete else PREEMPTED, "finished" if is_complete else "stopped")
                # one that Ctrl-C has stopped is not recorded, so its state does not matter
                self.state = "complete" if session.trainer.is_complete else "pruned"
            if self.study is not None and self.state == "complete" and self.value is None:
                raise ConfigError("the run ended without a score")

    def _must_stop(self) -> bool:
        return self.tuning.world.any(self.interrupt.requested or self.is_pruned)

    def _report_recorded(self, request: RunRequest) -> None:
        """Report the scores of a run that was interrupted, on rank 0."""
        if self.study is not None and (request.out / "metrics.jsonl").exists():
            record = open_record(request.out)
            record.read()
            for entry in record.history.scores:
                self._report(request.config, entry.kimg, entry.values)

    def _report(self, config: RunConfig, kimg: float, values: Mapping[str, Any]) -> None:
        """Take the goal of a score; prune the trial if it has not ended, and others had better scores by then."""
        self.value = None  # not an earlier score, if this one raises
        self.value = _goal_of(values, self.tuning.plan.goal)
        period = config.every.score_kimg
        number = round(kimg / period) if period else 0  # by period, since batch sizes shift the exact image count
        if self.study is not None and kimg < self.tuning.plan.kimg and number not in self.reported:
            self.reported.add(number)
            self.is_pruned |= self.study.report(number, self.value)


def _is_of_study(error: Exception) -> bool:
    """Return whether the user must change something: no value of this trial is the cause, so all would fail."""
    is_of_trial = isinstance(error, DivergedError | PeerFailedError) or is_out_of_memory(error)
    return outcome(error)[0] == ParaganError.exit_code and not is_of_trial


def _link_judge(run: Path) -> None:
    """Link the judge of another trial into a run that has none."""
    judge = next(run.parent.glob("*/judge/judge.json"), None)
    if judge is not None and not (run / "judge").exists():
        target = create_subfolder(run, "judge")
        for file in judge.parent.iterdir():
            link_or_copy(file, target / file.name)


def _goal_of(values: Mapping[str, Any], goal: str) -> float:
    """Return the value of a metric in a score. `DivergedError`: it is not finite."""
    numbers = {name: value for name, value in values.items() if isinstance(value, float)}
    published = PUBLISHED_NAMES.get(goal)  # fd is recorded as fid@50k
    named = [name for name in numbers if name.partition("[")[0] == goal or name.partition("@")[0] == published]
    if not named:
        raise ConfigError(f"goal {goal} is not among the scores of this run: {', '.join(numbers)}; choose one of them")
    if not math.isfinite(numbers[named[0]]):
        raise DivergedError(f"{named[0]} is not finite")
    return numbers[named[0]]
