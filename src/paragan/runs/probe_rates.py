"""Learning-rate probe of a plan: short runs with half, whole and double rates, in one process."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paragan import build
from paragan.build.data import sample_name
from paragan.build.initial_weights import initial_paths, initialised
from paragan.config import RunConfig
from paragan.core.errors import ConfigError, DivergedError, is_out_of_memory
from paragan.core.files import create_subfolder, link_or_copy
from paragan.evaluation.score import Score
from paragan.game.options import PlayerOptions
from paragan.runs.plan_settings import PlanSource, with_settings
from paragan.scaling.parallel_plan import ParallelPlan, PlannedSetting
from paragan.scaling.rules import scale_learning_rates
from paragan.scaling.successive_halving import Probe, TrialScore, successive_halving

FACTORS = (0.5, 1.0, 2.0)
_LENGTH = 5  # of all trials, as a multiple of the first: three of K, two of them resumed to 2 K
_LARGEST_SHARE = 0.25  # of the run
_PERIOD_S = 10.0  # between two lines of progress
Say = Callable[[str], None]


@dataclass(frozen=True)
class ProbeRequest:
    """A probe of a plan's learning rates. kimg: length of its first runs.

    memory_bytes: of this process; None: no limit is known. say: called with lines of progress.
    report: called with a line for each result.
    """

    kimg: float
    say: Say
    report: Say
    memory_bytes: int | None = None


def refuse_probe(config: RunConfig, kimg: float) -> None:
    """Raise `ConfigError` for a config without scores, and for a length that does not fit it."""
    key = "features" if sample_name(config, None) is None else "metrics"
    if getattr(config.evaluation, key) is None:
        problem = f"--probe-kimg compares scores, and evaluation.{key}=null switches them off"
        raise ConfigError(f"{problem}; set evaluation.{key}, or leave --probe-kimg out")
    if not kimg > 0:
        raise ConfigError(f"--probe-kimg must be more than 0, not {kimg:g}")
    largest = _LARGEST_SHARE * config.train.kimg
    if kimg > largest:
        run = f"train.kimg={config.train.kimg:g}"
        problem = f"--probe-kimg {kimg:g} is more than a quarter of {run}"
        cost = f"its trials are {_LENGTH * kimg:g} kimg in all, longer than the run"
        raise ConfigError(f"{problem}: {cost}; pass {largest:g} or less")


def probe_rates(source: PlanSource, plan: ParallelPlan, request: ProbeRequest) -> ParallelPlan:
    """Return the plan with the learning rates that short runs in a temporary folder lead to.

    Raises `ConfigError` as `refuse_probe`, `DivergedError` if no run stays finite.
    """
    refuse_probe(source.config, request.kimg)
    planned = with_settings(source.config, plan.settings)
    parts = _micro_batches(source, planned, request.memory_bytes)
    config = _trial_config(planned, parts)
    for line in _describe(planned, request.kimg):
        request.report(line)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="paragan-probe-") as folder,
            torch.random.fork_rng(devices=[]),
        ):
            trials = _Trials(config, Path(folder), request)
            probe = successive_halving(FACTORS, request.kimg, trials)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        problem = f"no memory for the learning-rate probe with batches of {plan.batch}"
        hint = "pass --memory GB with --choose for micro-batches, or leave --probe-kimg out"
        raise ConfigError(f"{problem}; {hint}") from error
    return _with_rates(plan, planned, probe)


def _micro_batches(source: PlanSource, planned: RunConfig, limit: int | None) -> int:
    """Return the fewest micro-batches of the whole batch that fit into the memory of a process."""
    if limit is None:
        return 1
    batch = planned.train.batch
    measured = max(source.config.g.micro_batches, source.config.d.micro_batches)
    for parts in range(max(planned.g.micro_batches, planned.d.micro_batches), batch + 1):
        # the profile is that of batches in `measured` micro-batches
        if batch % parts == 0 and source.profile.memory.at(measured * batch // parts) <= limit:
            return parts
    problem = "the learning-rate probe trains in one process, where one sample needs more than"
    raise ConfigError(f"{problem} {limit / 1e9:g} GB; leave --probe-kimg out")


def _trial_config(planned: RunConfig, parts: int) -> RunConfig:
    """Return the planned config for one process: whole batch, synchronous, scored at its end."""

    def alone(player: PlayerOptions) -> PlayerOptions:
        most = max(parts, player.micro_batches)
        return replace(player, strategy=None, reduce="fp32", micro_batches=most)

    return replace(
        build.in_turns(planned),
        devices=None,
        g=alone(planned.g),
        d=alone(planned.d),
        train=replace(planned.train, executor="eager"),
        every=replace(planned.every, sample_kimg=0.0, save_kimg=0.0, score_kimg=0.0),
        evaluation=replace(planned.evaluation, mode="inline", max_time_share=None),
    )


def _describe(planned: RunConfig, kimg: float) -> list[str]:
    """Return lines about a probe: what it trains, and what differs from the plan."""
    names = ", ".join(f"{factor:g}" for factor in FACTORS)
    lengths = f"{kimg:g} kimg each, the better two {2 * kimg:g} kimg"
    place = f"in one process with batches of {planned.train.batch:,}"
    lines = [f"probe     learning rates x {names}: {lengths}, {place}"]
    if others := _differing_settings(planned):
        lines.append(f"probe     synchronous, without {', '.join(others)}")
    g_images = planned.g.schedule.warmup * planned.d.updates_per_step
    warmup = max(g_images, planned.d.schedule.warmup) * planned.train.batch / 1000
    if kimg <= warmup:
        text = f"the first runs end within the warm-up of {warmup:g} kimg, at lower rates"
        lines.append(f"warning: {text}; pass a larger --probe-kimg")
    return lines


def _differing_settings(planned: RunConfig) -> list[str]:
    """Return planned settings by which several ranks differ from one process with the batch."""
    found = [f"scheme.name={planned.scheme.name}"] if build.scheme(planned).is_concurrent else []
    for name, player in (("g", planned.g), ("d", planned.d)):
        differs = build.strategy_on_ranks(player, torch.device("cpu")).exemption
        if differs and player.strategy is not None:
            found.append(f"{name}.strategy.name={player.strategy.name}")
        if player.reduce != "fp32":
            found.append(f"{name}.reduce={player.reduce}")
    return found


@dataclass(frozen=True)
class _Trials:
    """Runs of a config in one folder each, which longer runs resume."""

    config: RunConfig
    folder: Path
    request: ProbeRequest

    def __call__(self, factor: float, kimg: float) -> TrialScore | None:
        """Train up to `kimg` with rates times `factor`, and report the score."""
        run = self.folder / f"x-{factor:g}"
        if not run.exists():
            judge = next(self.folder.glob("*/judge"), None)
            run.mkdir()
            _share_judge(judge, run)
        name = f"probe     lr x {factor:g}"
        scaled = _scaled(self.config, factor)
        config = replace(scaled, train=replace(scaled.train, kimg=kimg))
        score = _train(config, run, name, self.request.say)
        found = "diverged" if score is None else f"{score.metric} {score}"
        self.request.report(f"{name}: {found} after {kimg:g} kimg")
        return score


def _share_judge(judge: Path | None, run: Path) -> None:
    """Link the extractor that another trial has trained on the same data, if any."""
    if judge is not None:
        folder = create_subfolder(run, judge.name)
        for file in judge.iterdir():
            link_or_copy(file, folder / file.name)


def _train(config: RunConfig, run: Path, name: str, say: Say) -> TrialScore | None:
    """Train in a folder, from its newest checkpoint if any; return the score.

    None: the run diverged.
    """
    values: Mapping[str, Any] = {}
    trainer = build.trainer(config, run, say, lambda: False)
    printed = time.monotonic()
    try:
        if not trainer.resume() and initial_paths(config):
            initialised(config, trainer, None, say)
        for event in trainer.run():
            if event.kind == "score":
                values = event.values
            elif time.monotonic() - printed >= _PERIOD_S:
                printed = time.monotonic()
                say(f"{name}: {event.images / 1000:.1f} of {config.train.kimg:g} kimg")
    except DivergedError:
        return None
    finally:
        trainer.batches.close()
    return _trial_score(Score.from_values(values))


def _trial_score(score: Score) -> TrialScore | None:
    """Return the score by the metric that ranks checkpoints; None if it is not finite."""
    if (metric := score.decisive) is None:
        problem = "--probe-kimg compares scores, and no metric of evaluation.metrics ranks them"
        raise ConfigError(f"{problem}; add one such as fd, or leave --probe-kimg out")
    value = score.metrics[metric]
    ends = score.intervals.get(metric)
    if not math.isfinite(value):
        return None
    is_known = ends is not None and all(map(math.isfinite, ends))
    return TrialScore(metric, value, score.direction(metric), ends if is_known else None)


def _scaled(config: RunConfig, factor: float) -> RunConfig:
    """Return the config with all learning rates times `factor`."""
    g = scale_learning_rates(config.g, factor)
    return replace(config, g=g, d=scale_learning_rates(config.d, factor))


def _with_rates(plan: ParallelPlan, planned: RunConfig, probe: Probe) -> ParallelPlan:
    """Return the plan with the rates of a probe, as further decisions."""
    config = _scaled(planned, probe.factor)
    found = []
    for name, player in (("g", config.g), ("d", config.d)):
        found.append(PlannedSetting(f"{name}.optimizer.lr", player.optimizer.lr, probe.reason))
        if groups := player.optimizer.groups:
            found.append(PlannedSetting(f"{name}.optimizer.groups", list(groups), probe.reason))
    settings = {**plan.settings, **{one.key: one.value for one in found}}
    return replace(plan, settings=settings, decisions=(*plan.decisions, *found))
