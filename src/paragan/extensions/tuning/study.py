"""The study of `tune`: which trial is next, and what became of each, in a database of Optuna.

Several processes may use one study. A process holds the lock of its trial, so that a trial whose
process was killed is found at once, and is given out again with the same values and run folder.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import check_no_link, create_subfolder, open_lock_file
from paragan.core.metric import Direction
from paragan.extensions.tuning.space import Dimension, Value
from paragan.runs.folder import STUDY, try_to_lock

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy, Trial
    from optuna.samplers import BaseSampler
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

Sampler = Literal["tpe", "grid"]
# attributes of a trial in the database
_RUN = "run"  # number of the run folder: a trial that is given out again is a new one with the same number
_REASON = "reason"  # why a trial has no score; a failed trial without one was interrupted
_WAIT_S = 60.0  # for the database, while another process writes


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What a study compares. settings: of all trials. goal: metric, and which of its values are better.

    trials: number that is to end. kimg: length of a trial.
    """

    recipe: str
    settings: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    goal: str
    direction: Direction
    trials: int
    kimg: float
    seed: int
    sampler: Sampler = "tpe"

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"trials={self.trials} is invalid; pass a number of at least 1")
        ranges = [dimension.key for dimension in self.dimensions if dimension.kind != "choice"]
        if self.sampler == "grid" and ranges:
            raise ConfigError(f"a grid needs single values, and {ranges[0]} has a range; write {ranges[0]}=a,b,c")

    @property
    def max_trials(self) -> int:
        """Number of trials that are to end: all of a grid at most."""
        if self.sampler != "grid":
            return self.trials
        return min(self.trials, prod(len(dimension.choices) for dimension in self.dimensions))


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial that has ended. number: of its run folder. value: newest score. reason: why it failed."""

    number: int
    state: str  # complete, pruned or failed
    value: float | None
    reason: str
    values: dict[str, Value]


class Study:
    """Trials of a plan, in `study.db` of a folder. One trial at a time is this process's.

    Trials that ended with an error are given out once more. num_running: trials of other processes,
    at the newest `start`. Raises `CheckpointError` if the folder holds the study of another plan;
    `trials` may differ.
    """

    def __init__(self, plan: StudyPlan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self._trial: Trial | None = None
        self._lock: BinaryIO | None = None
        self.num_running = 0
        check_no_link(folder / STUDY)
        if (folder / "config.yaml").exists() and not (folder / STUDY).exists():
            raise CheckpointError(f"{folder} holds a run, not a study; choose another folder with --out DIR")
        create_subfolder(folder, "locks")
        with self._exclusively():
            self._storage = _open_storage(folder / STUDY)
            self._study = _open_study(plan, self._storage)
            self._check_plan()
            for trial in self._newest_trials():
                if trial.state.name == "FAIL" and _REASON in trial.user_attrs:
                    self._queue(trial)

    def start(self) -> tuple[int, dict[str, Value]] | None:
        """Return the folder's number and the values of the next trial; None: enough have ended or run."""
        from optuna.samplers import RandomSampler

        with self._exclusively():
            trials = self._study.get_trials(deepcopy=False)
            open_trials = [trial for trial in trials if trial.state.name == "RUNNING"]
            running = [trial for trial in open_trials if not self._requeue_if_dead(trial)]
            self.num_running = len(running)
            if len(self.ended()) + len(running) >= self.plan.max_trials:
                return None
            numbers = [trial.user_attrs[_RUN] for trial in trials if _RUN in trial.user_attrs]
            number = 1 + max(numbers, default=-1)
            # A seed for each draw: with one for all, each process and each resume would draw the same values.
            self._study.sampler = self._sampler(number)
            distributions = {dimension.key: dimension.distribution for dimension in self.plan.dimensions}
            self._trial = self._study.ask(distributions)
            self._study.sampler = RandomSampler()  # that of grids would stop `Study.optimize` at an end
            if _RUN not in self._trial.user_attrs:
                self._trial.set_user_attr(_RUN, number)
            self._lock = open_lock_file(self._lock_path(self._trial.number))
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            return self._trial.user_attrs[_RUN], dict(self._trial.params)

    def report(self, number: int, value: float) -> bool:
        """Record the score `number` of this process's unfinished trial; return whether the trial is to be pruned."""
        assert self._trial is not None, "after start"
        self._trial.report(value, number)
        return self._trial.should_prune()

    def end(self, state: str, value: float | None, reason: str) -> None:
        """Record what became of this process's trial. state: complete, pruned or failed."""
        from optuna.trial import TrialState

        assert self._trial is not None, "after start"
        if reason:
            self._trial.set_user_attr(_REASON, reason)
        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        self._study.tell(self._trial, value if state == "complete" else None, states[state])
        self.close()

    def close(self) -> None:
        """Give up this process's trial, if it has one: the next `start`, of any process, continues it."""
        self._trial = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._storage.remove_session()
        self._storage.engine.dispose()  # connects again when it is used

    def ended(self) -> list[TrialRecord]:
        """Return the trials that have ended, by number, without those that were interrupted."""
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        return [
            TrialRecord(
                number=trial.user_attrs[_RUN],
                state=states[trial.state.name],
                value=trial.value if trial.state.name == "COMPLETE" else _newest_score(trial),
                reason=trial.user_attrs.get(_REASON, ""),
                values=dict(trial.params),
            )
            for trial in self._newest_trials()
            if trial.state.name in states and (trial.state.name != "FAIL" or _REASON in trial.user_attrs)
        ]

    def _newest_trials(self) -> list[FrozenTrial]:
        """Return the newest trial of each run folder: earlier ones were given out again."""
        trials = self._study.get_trials(deepcopy=False)
        return list({trial.user_attrs.get(_RUN): trial for trial in trials}.values())

    def _queue(self, trial: FrozenTrial) -> None:
        """Give a trial out once more, with its values and run folder."""
        self._study.enqueue_trial(trial.params, {_RUN: trial.user_attrs[_RUN]})

    def _requeue_if_dead(self, trial: FrozenTrial) -> bool:
        """Give out a running trial again if its process has ended; return whether that was so."""
        from optuna.trial import TrialState

        with open_lock_file(self._lock_path(trial.number)) as lock:
            if not try_to_lock(lock):
                return False
        self._study.tell(trial.number, state=TrialState.FAIL)
        keys = {dimension.key for dimension in self.plan.dimensions}
        if trial.params.keys() == keys:  # else the process ended while values were drawn
            self._queue(trial)
        return True

    def _sampler(self, number: int) -> BaseSampler:
        from optuna.samplers import GridSampler, TPESampler

        if self.plan.sampler == "grid":
            choices = {dimension.key: list(dimension.choices) for dimension in self.plan.dimensions}
            return GridSampler(choices, self.plan.seed)
        return TPESampler(seed=int(np.random.SeedSequence((self.plan.seed, number)).generate_state(1)[0]))

    def _check_plan(self) -> None:
        """Record the plan, or compare it with that of a former call."""
        plan = json.loads(json.dumps(asdict(self.plan) | {"trials": 0}))
        former = self._study.user_attrs.get("plan")
        if former is None:
            self._study.set_user_attr("plan", plan)
        elif changed := [name for name in plan if plan[name] != former.get(name)]:
            problem = f"{self.folder} holds a study with other {', '.join(changed)}"
            raise CheckpointError(f"{problem}; give the former values, or another --out DIR")

    def _lock_path(self, number: int) -> Path:
        return self.folder / "locks" / f"{number}.lock"

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Keep other processes from starting a trial inside."""
        with open_lock_file(self.folder / "locks" / "study.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _open_storage(path: Path) -> RDBStorage:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{path.resolve()}".replace("{", "{{").replace("}", "}}")  # Optuna formats it
    return optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": _WAIT_S}})


def _open_study(plan: StudyPlan, storage: RDBStorage) -> OptunaStudy:
    import optuna
    from optuna.study import StudyDirection

    direction = StudyDirection.MAXIMIZE if plan.direction == Direction.HIGHER else StudyDirection.MINIMIZE
    pruner = optuna.pruners.MedianPruner()
    return optuna.create_study(
        storage=storage, study_name="tune", direction=direction, pruner=pruner, load_if_exists=True
    )


def _newest_score(trial: FrozenTrial) -> float | None:
    """Return the newest score of a trial that did not end with one."""
    with suppress(ValueError):
        return trial.intermediate_values[max(trial.intermediate_values)]
    return None
