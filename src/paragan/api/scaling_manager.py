"""Manager of the ParaGAN poster: a custom loop over the steps of a run."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.api.estimator import Estimator
from paragan.api.networks import Networks
from paragan.api.training import in_python_words, local_run_folder, program_name
from paragan.config import RunConfig
from paragan.core.capabilities import SCALING_MANAGER, check_capabilities
from paragan.core.command import program_command
from paragan.core.errors import PREEMPTED, ConfigError
from paragan.core.printable import counted
from paragan.core.registry import check_extension
from paragan.distributed.launch.join import destroy_groups
from paragan.distributed.launch.rank_env import from_environment
from paragan.engine.session import Session
from paragan.engine.training_loop import TrainingLoop
from paragan.runs import scaling_rules, session as runs
from paragan.runs.run_lines import end_line, result_lines
from paragan.runs.run_request import RunRequest

if TYPE_CHECKING:
    from paragan.extensions.planning.plan import ParallelPlan
    from paragan.extensions.tuning.space import Dimension

_FINISHED = "finished"


class ScalingManager:
    """Training of a pair of networks on the available workers (the ParaGAN poster, figure 5).

    config: the best settings of a single worker; `config.max_steps` is the range of its steps. bs: images of a batch
    over `num_workers` workers: torchrun's ranks, or one process alone. Each has bs / num_workers images, however many
    exist; `self.config` is the config of the run, with the resulting batch. The number of steps is unchanged: the
    images of a run grow with its batch.

    rule: how both learning rates follow a batch r times that of `config`: `sqrt` of r, for Adam (Malladi et al. 2022;
    betas and eps do not change here); `linear`, r itself, for SGD (Goyal et al. 2017, section 2.1, after a warm-up:
    `schedule.warmup`); `none`.

    plan: None: only batch and rates change. `auto`: the first step measures this pair on rank 0, and chooses the
    settings of the workers by simulation, as `paragan train --plan auto` does; `plan` has them, with reasons. A file:
    of `paragan plan --choose --json`; its batch replaces `bs`.

    tune: None, or ranges of settings, such as {"g.optimizer.lr": "log:1e-5..1e-3"}: the first step trains `trials`
    trials of a tenth of the run's steps on all workers, and the run has the values of the best Frechet distance (extra
    `tune`; docs/how-to/train/tune.md has the ranges). The trials are in OUT-tune. A run that exists keeps its values.

    out: the run folder; runs/NAME after the program unless given. Repeating the program resumes from its newest
    checkpoint; fresh: set a former run aside. Raises children of `paragan.ParaganError`.
    """

    def __init__(
        self,
        config: RunConfig,
        bs: int,
        num_workers: int,
        *,
        rule: str = "sqrt",
        plan: str | Path | None = None,
        tune: Mapping[str, str] | None = None,
        trials: int = 20,
        out: str | Path | None = None,
        fresh: bool = False,
    ) -> None:
        check_capabilities(SCALING_MANAGER, config.needs)
        self._place = from_environment()
        self._out = local_run_folder(out, program_name())
        self._fresh = fresh
        num_available = 1 if self._place is None else self._place.size
        self.config = _scale_config(config, scaling_rules.scaled_batch(bs, num_workers, num_available), rule)
        self._gan: Estimator | None = None
        self._session: Session | None = None
        self._plan_source = plan
        self._dimensions = _parse_ranges(tune)
        self._trials = trials
        self._unscaled = (config, rule)  # a plan scales anew for its workers
        self.plan: ParallelPlan | None = None
        self._end = ""  # why no more steps are possible: `_FINISHED`, or words after "this manager"
        self._exits = ExitStack()
        self.world = runs.join_world(config, self._place)
        atexit.register(self.close)
        self._log = runs.printer(self.world)
        self._log(_workers_line(config, self.config, num_workers, num_available, rule))

    @property
    def trainer(self) -> TrainingLoop:
        """Training loop of the run, with its players and clock. `ConfigError` before the first step."""
        return self._begun_session.trainer

    def train(self, gan: Estimator) -> None:
        """Run one step of the game, and what is due after it: samples, a score, a checkpoint.

        Collective: every rank must call this. The last step ends the run with a checkpoint and a
        score; later calls do nothing.
        """
        if self._session is None:
            self._begin(gan)
        if gan is not self._gan:
            raise ConfigError("train: this ScalingManager trains another Estimator; make a ScalingManager for each")
        if self._end == _FINISHED:
            return
        with self._running_session() as session:
            trainer = session.trainer
            for event in trainer.run(num_steps=1):
                session.write(event)
            if trainer.clock.images >= trainer.images:
                for event in trainer.run():  # ends it; local SGD first takes steps until all weights are equal again
                    session.write(event)
        if session.trainer.is_finished:
            self._finish(session)

    def eval(self, metric: str = "fd") -> float:
        """Return a score of the sampling generator. Collective: every rank must call this.

        metric: one of the run's metrics, such as `coverage`; `fd` is the Frechet distance in features of the run's
        extractor. `fid` is the published distance with `evaluation.features=inception`; with another extractor it is
        read as `fd`. A printed line says which features were compared. Raises `ConfigError` for other names.
        """
        with self._running_session(needs_equal_weights_for="eval") as session:
            trainer = session.trainer
            if trainer.scored_at != trainer.clock.step:
                for event in trainer.scores():
                    session.write(event)
            scores = session.last_score.items()
            numbers = {name: value for name, value in scores if isinstance(value, float)}
            values = trainer.roles.gather_merged(numbers)
        if not values:
            raise ConfigError("eval needs an extractor, and evaluation.features is null; pass evaluation.features=auto")
        recorded = {name.partition("[")[0].partition("@")[0]: name for name in values}  # "fd" of "fd[judge]@1000"
        requested = "fd" if metric == "fid" and "fid" not in recorded else metric
        name = recorded.get(requested, requested)
        if name not in values:
            choices = ", ".join(dict.fromkeys([*values, *recorded]))
            raise ConfigError(f"eval: unknown metric {metric!r}; choose one of {choices}")
        if metric == "fid":
            self._log(_fid_line(name, values[name]))
        return values[name]

    def save(self) -> None:
        """Save a checkpoint, besides the scheduled ones. Collective: every rank must call this."""
        with self._running_session(needs_equal_weights_for="save") as session:
            trainer = session.trainer
            if trainer.saved_at != trainer.clock.step:
                session.write(trainer.save())

    def close(self) -> None:
        """End the run, finished or not: close files and leave the process group.

        Also called when the program ends. Steps after the last checkpoint are discarded.
        """
        atexit.unregister(self.close)
        session = self._session
        if session is not None and not self._end:
            trainer = session.trainer
            is_saved = trainer.saved_at == trainer.clock.step
            saved = "saved" if is_saved else f"not saved since step {trainer.saved_at}"
            runs.end_session(session, PREEMPTED, f"the program ended early; {saved}")
            trainer.scheme.close()
        self._end = "is closed"
        self._exits.close()
        destroy_groups(self.world)

    @property
    def _begun_session(self) -> Session:
        if self._session is None:
            raise ConfigError("ScalingManager: nothing is trained yet; call train(gan) first")
        return self._session

    @contextmanager
    def _running_session(self, needs_equal_weights_for: str | None = None) -> Iterator[Session]:
        """Yield the session; a failure inside ends it. needs_equal_weights_for: name of the method, for the message."""
        session = self._begun_session
        if self._end == _FINISHED:
            yield session  # already scored and saved
            return
        self._check_open()
        if needs_equal_weights_for and not session.trainer.is_synchronized:
            raise ConfigError(
                f"{needs_equal_weights_for}: the ranks have not averaged their weights since the last step; call "
                "train(gan) first"
            )
        try:
            with runs.record_failure(session):
                yield session
        except BaseException:
            self._end = "ended with an error"
            self._exits.close()
            raise

    def _check_open(self) -> None:
        if self._end:
            raise ConfigError(
                f"ScalingManager: this manager {self._end}; create a new one, which resumes from the last checkpoint"
            )

    def _begin(self, gan: Estimator) -> None:
        self._check_open()
        if not isinstance(gan, Estimator):
            raise ConfigError(f"train: gan must be an Estimator(g, d), not a {type(gan).__name__}")
        with in_python_words(), runs.share_failures(self.world):
            networks = gan.networks(self.world)
            self.config = networks.recorded_in(self.config)
            if self._plan_source is not None:
                self.config = self._planned(self._plan_source, networks)
            if self._dimensions:
                from paragan.extensions.tuning.program_tuning import ProgramTuning

                tuning = ProgramTuning(
                    config=self.config, networks=networks, world=self.world, place=self._place, folder=self._out
                )
                self.config = tuning.apply(self._dimensions, self._trials, self._fresh, self._log)
            request = RunRequest(
                config=self.config,
                name=program_name(),
                out=self._out,
                fresh=self._fresh,
                place=self._place,
                model=networks,
                resume_hint="the same program resumes",
            )
            session = runs.open_session(request, self.world, stop=lambda: False)  # signals do not end a program's loop
            self._session = self._exits.enter_context(session)
        self._gan = gan

    def _planned(self, plan: str | Path, networks: Networks) -> RunConfig:
        """Return the config with the settings of the plan. Collective."""
        check_extension("planning", "plan")
        from paragan.extensions.planning.planned_training import plan_program

        unscaled, rule = self._unscaled
        train = replace(unscaled.train, kimg=self.config.train.kimg)  # of the run's steps, at the batch to be planned
        planned, self.plan = plan_program(
            plan,
            replace(networks.recorded_in(unscaled), train=train),
            networks,
            world=self.world,
            folder=None if self._fresh else self._out,
            batch=self.config.train.batch,
            rule=rule,
            log=self._log,
        )
        kimg = self.config.train.kimg * (planned.train.batch / self.config.train.batch)  # a file has its own batch
        return replace(planned, train=replace(planned.train, kimg=kimg))

    def _finish(self, session: Session) -> None:
        self._end = _FINISHED
        runs.end_session(session, code=0, reason=_FINISHED)
        self._exits.close()  # another process may use the folder
        self._log(f"{end_line(session, _FINISHED)}\n{result_lines(session)}")


def _parse_ranges(tune: Mapping[str, str] | None) -> tuple[Dimension, ...]:
    """Return the ranges of the settings to search."""
    if tune is None:
        return ()
    check_extension("tuning", "tune")
    from paragan.extensions.tuning.space import parse_ranges

    return parse_ranges(tune)


def _scale_config(config: RunConfig, batch: int, rule: str) -> RunConfig:
    """Return the config with the same number of steps, another batch and its learning rates."""
    factor = scaling_rules.learning_rate_factor(rule, batch / config.train.batch)
    kimg = len(config.max_steps) * batch * config.batches_per_step / 1000
    for name, options in config.player_options.items():
        config = config.with_player(name, scaling_rules.scale_learning_rates(options, factor))
    return replace(config, train=replace(config.train, batch=batch, kimg=kimg))


def _workers_line(before: RunConfig, now: RunConfig, num_workers: int, num_available: int, rule: str) -> str:
    """Return the line about the available workers, with the batch and the learning rates."""
    workers = f"{num_available}" if num_available == num_workers else f"{num_available} instead of {num_workers}"
    batch = now.train.batch
    rates = f"lr g {now.g.optimizer.lr:.3g}, d {now.d.optimizer.lr:.3g}"
    scaling = f"{rule} of {batch}/{before.train.batch}" if rule != "none" else "unchanged"
    batches = f"batches of {counted(batch, 'image')}, {batch // num_available} each"
    return f"workers   found {workers}: {batches}; {rates} ({scaling})"


def _fid_line(name: str, value: float) -> str:
    """Return the line about a Frechet distance: whose features it compared, and whether papers do so."""
    distance = f"eval      fid is {name} {value:.4g}, compared in features of"
    if name.startswith("fid"):
        return f"{distance} the published Inception network: the FID of papers, for as many images"
    extractor = name.partition("[")[2].rstrip("]")
    network = "the judge, a network trained on this run's images" if extractor == "judge" else extractor
    return (
        f"{distance} {network}: not the published FID; compare it only with runs that are scored by the same "
        f"extractor; for the FID run `{program_command()} metrics import-weights FILE`, and pass "
        "evaluation.features=inception"
    )
