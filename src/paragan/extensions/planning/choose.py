"""Choice of the settings of a run on many workers, each with its reason and prediction.

Candidates are simulated on the same draws. One that changes the algorithm (rarer synchronisation,
asynchronous players) is chosen only if its predicted gain clears a margin. Sources: ParaGAN
(arXiv 2411.03999), the scaling manager; Goyal et al. 2017 and Malladi et al. 2022 (learning rates).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from paragan import build
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.planning.candidates import Candidate, PlanSource, candidates as all_candidates
from paragan.extensions.planning.cluster import Cluster
from paragan.extensions.planning.plan import ParallelPlan, PlannedSetting, Prediction
from paragan.extensions.planning.profile import RunProfile
from paragan.extensions.planning.simulation import SimulatedTime
from paragan.runs.scaling_rules import learning_rate_factor, scale_learning_rates

_STEPS = 120  # simulated for each candidate
_UNCOUNTED_STEPS = 20  # of these, the first: pipelines fill
_WARMUP_UPDATES = 100  # of a rate that is raised, for each time that the batch is larger
_MAX_WARMUP = 0.1  # of a run's updates
_MIN_READ_SHARE = 0.02  # of a step, from which batches are read ahead
_MIN_HALF_LIFE = 10  # updates in the half-life of an average


def choose_plan(
    source: PlanSource, cluster: Cluster, batch: int, memory_bytes: int | None = None, rule: str | None = None
) -> ParallelPlan:
    """Choose the settings of a run on a cluster.

    batch: of D, over all workers; the learning rates are set for that of the config. memory_bytes: of
    a worker; None: no limit is known. rule: of the learning rates; None: by the optimiser. Raises
    `ConfigError` for a limit that no strategy reaches, and for workers without a sample.
    """
    config = source.config
    profile = source.profile
    workers = cluster.workers
    num_images = config.train.kimg * 1000
    if batch < workers:
        raise ConfigError(f"a batch of {batch} has no sample for each of {workers} workers; pass a larger train.batch")
    local = -(-batch // workers)
    fitted = _fit_memory(profile, workers, local, memory_bytes)
    fitting = fitted.candidates(source, batch, workers)
    predictions = _predict(fitting, cluster)
    best = _select(fitting, predictions)
    chosen = predictions[best]
    decisions = (
        PlannedSetting("train.batch", batch, f"{local} samples on each of {workers} workers"),
        *fitted.decisions(config),
        *_explain(fitting[best], chosen),
        *_rates(config, batch, rule, round(num_images / (batch * profile.batches_per_step))),
        *_averages(config, batch),
        _prefetch(source, local, chosen.step_s),
    )
    return ParallelPlan(
        fingerprint=profile.fingerprint,
        machine=profile.machine,
        workers=workers,
        batch=batch,
        local_batch=local,
        chosen=chosen.name,
        settings={decision.key: decision.value for decision in decisions if decision.key},
        step_s=chosen.step_s,
        images_per_s=chosen.images_per_s,
        efficiency=chosen.images_per_s / (workers * profile.alone_images_per_s(batch)),
        hours=num_images / chosen.images_per_s / 3600,
        kimg=config.train.kimg,
        decisions=decisions,
        predictions=(chosen, *(other for other in predictions if other is not chosen)),
    )


def _predict(candidates: Sequence[Candidate], cluster: Cluster) -> list[Prediction]:
    """Return the forecast of each candidate, with its gain over the first one."""
    predictions: list[Prediction] = []
    for candidate in candidates:
        time = SimulatedTime(game=candidate.game, cluster=cluster)
        ends = time.run(_STEPS)
        step_s = float(np.diff(ends)[_UNCOUNTED_STEPS:].mean())
        images_per_s = candidate.game.batch * candidate.game.profile.batches_per_step / step_s
        gain = images_per_s / predictions[0].images_per_s - 1 if predictions else 0.0
        link_bytes = sum(time.bytes.values()) / _STEPS
        predictions.append(
            Prediction(name=candidate.name, step_s=step_s, images_per_s=images_per_s, gain=gain, link_bytes=link_bytes)
        )
    return predictions


def _select(candidates: Sequence[Candidate], predictions: Sequence[Prediction]) -> int:
    """Return the number of the candidate whose gain exceeds its margin most; the first, whose both are 0, if none does.

    Of equal ones, up to rounding, the first is chosen.
    """
    pairs = zip(candidates, predictions, strict=True)
    surplus = [round(prediction.gain - candidate.margin, 6) for candidate, prediction in pairs]
    return surplus.index(max(surplus))


def _explain(candidate: Candidate, prediction: Prediction) -> list[PlannedSetting]:
    """Return the settings of the chosen candidate, with the reason."""
    predicted = f"{1000 * prediction.step_s:,.3g} ms a step, {prediction.images_per_s:,.4g} images/s predicted"
    if not candidate.settings:
        reason = f"{predicted}; no other candidate gains more than its margin"
        return [PlannedSetting("", candidate.name, reason)]
    reason = f"{prediction.gain:+.0%} images/s, more than its margin of {candidate.margin:.0%}; {predicted}"
    return [PlannedSetting(key, value, reason) for key, value in candidate.settings.items()]


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """Strategy and micro-batches that fit. peak: bytes of a step; limit: of a worker; None: unknown.

    strategy: of both players; None: as configured. parts: into which each of the config's micro-batches is
    split. saved: bytes that sharding saves: of each of `Strategy.sharded_copies` of the weights, a worker has one part
    in as many as there are workers.
    """

    strategy: str | None = None
    parts: int = 1
    peak: float = 0.0
    limit: int | None = None
    saved: float = 0.0

    def candidates(self, source: PlanSource, batch: int, workers: int) -> list[Candidate]:
        """Return the first candidate for a batch, and others whose workers have no more samples than fit."""
        game = build.gan(source.config, source.data, torch.device("cpu"), model=source.model)
        planned = replace(source, config=replace(source.config, train=replace(source.config.train, batch=batch)))
        first, *others = all_candidates(planned, game, workers, self.strategy)
        max_bytes = math.inf if self.limit is None else self.limit + self.saved
        bytes_at = source.profile.memory.at
        samples = [-(-other.max_samples(workers) // self.parts) for other in others]  # in a micro-batch, rounded up
        return [first, *(other for other, n in zip(others, samples, strict=True) if bytes_at(n) <= max_bytes)]

    def decisions(self, config: RunConfig) -> list[PlannedSetting]:
        """Return the settings of strategy and micro-batches, with the reason."""
        if self.limit is None:
            reason = "no memory limit is known, or the memory of the networks is not planned"
            return [PlannedSetting("", "strategy and micro-batches as configured", reason)]
        reason = f"{self.peak / 1e6:,.0f} MB at the peak of a step, within {self.limit / 1e6:,.0f} MB"
        settings = []
        for side in Side:
            if self.strategy is not None:
                settings.append(PlannedSetting(f"{side.value}.strategy.name", self.strategy, reason))
            if self.parts > 1:
                number = self.parts * config.player_options[side.value].micro_batches
                settings.append(PlannedSetting(f"{side.value}.micro_batches", number, reason))
        return settings or [PlannedSetting("", "memory", reason)]


def _fit_memory(profile: RunProfile, workers: int, local: int, limit: int | None) -> _Fit:
    """Return the first strategy, and the fewest micro-batches of equal size, that fit into a worker's memory."""
    if limit is None:
        return _Fit()
    weights = profile.g.weight_bytes + profile.d.weight_bytes
    strategies = _sharding_strategies()
    for name, copies in ((None, 0), *strategies):
        saved = copies * weights * (1 - 1 / workers)
        for parts in range(1, local + 1):
            if local % parts == 0 and (peak := profile.memory.at(local // parts) - saved) <= limit:
                return _Fit(strategy=name, parts=parts, peak=peak, limit=limit, saved=saved)
    min_bytes = profile.memory.at(1) - strategies[-1][1] * weights * (1 - 1 / workers)
    raise ConfigError(
        f"no strategy fits into {limit / 1e9:g} GB on {workers} workers: one sample needs {min_bytes / 1e9:.3g} GB; "
        "use more workers, recompute, or a smaller model"
    )


def _sharding_strategies() -> list[tuple[str, int]]:
    """Return strategies that shard, each with its number of `Strategy.sharded_copies`, the fewest first."""
    names = registry.names("parallel")
    copies = {name: registry.load_module("parallel", name).Strategy.sharded_copies for name in names}
    return sorted(((name, number) for name, number in copies.items() if number), key=lambda pair: pair[1])


def _rates(config: RunConfig, batch: int, rule: str | None, updates: int) -> list[PlannedSetting]:
    """Return factors of the learning rates, and warm-ups, for another batch."""
    ratio = batch / config.train.batch
    if ratio == 1:
        return [PlannedSetting("", "learning rates", f"the batch of {batch} is the one they are set for")]
    settings = []
    for side in Side:
        name = side.value
        player = config.player_options[name]
        chosen = rule or ("linear" if player.optimizer.name == "SGD" else "sqrt")
        factor = learning_rate_factor(chosen, ratio)
        reason = f"{chosen} rule for a batch {ratio:g} times as large, with {player.optimizer.name}"
        scaled = scale_learning_rates(player, factor).optimizer
        settings.append(PlannedSetting(f"{name}.optimizer.lr", scaled.lr, reason))
        if scaled.groups:
            settings.append(PlannedSetting(f"{name}.optimizer.groups", list(scaled.groups), reason))
        if factor > 1:
            warmup = max(player.schedule.warmup, min(round(_MAX_WARMUP * updates), round(_WARMUP_UPDATES * ratio)))
            settings.append(PlannedSetting(f"{name}.schedule.warmup", warmup, "updates until the larger rate"))
    return settings


def _averages(config: RunConfig, batch: int) -> list[PlannedSetting]:
    """Return half-lives of averages that would be too short for a larger batch: they count images, not updates."""
    if batch <= config.train.batch:
        return []
    min_kimg = _MIN_HALF_LIFE * batch / 1000
    reason = f"{_MIN_HALF_LIFE} updates of the larger batch"
    averages = {side.value: config.player_options[side.value].ema for side in Side}
    short = [name for name, ema in averages.items() if ema is not None and ema.half_life_kimg < min_kimg]
    return [PlannedSetting(f"{name}.ema.half_life_kimg", min_kimg, reason) for name in short]


def _prefetch(source: PlanSource, local: int, step_s: float) -> PlannedSetting:
    """Return whether batches are read ahead. local: samples of a worker."""
    share = source.profile.batches_per_step * source.profile.load_s.at(local) / step_s
    if source.data.train.is_decoded and not source.config.loading.prefetch and share > _MIN_READ_SHARE:
        return PlannedSetting("loading.prefetch", "auto", f"reading is {share:.0%} of a step, and can run ahead")
    return PlannedSetting("", "loading.prefetch", f"reading is {share:.1%} of a step")
