"""Plans of the tiny digits, and learning-rate probes of them: what tests of the probe stand on."""

from __future__ import annotations

from dataclasses import replace

from paragan import build
from paragan.config import read_recipe
from paragan.core.metric import Direction
from paragan.core.types import Side
from paragan.runs import probe_rates
from paragan.runs.plan_settings import PlanSource
from paragan.runs.probe_rates import ProbeRequest
from paragan.runs.profile_run import updates_fingerprint
from paragan.scaling.choose import Candidate, PlanGoal, choose_plan
from paragan.scaling.parallel_plan import PlannedSetting
from paragan.scaling.successive_halving import TrialScore
from tests.simulated_workers import cluster, game, profile

WORDS = [
    "data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.threads=1", "train.kimg=1",
    "evaluation.num_images=100", "evaluation.metrics=fd", "evaluation.resamples=0",
]  # fmt: skip
GROUPS = 'd.optimizer.groups=[{match: "*.bias", lr: 1e-4}]'


def fd(value, width=0.0, direction=Direction.LOWER):
    return TrialScore("fd", value, direction, (value - width, value + width) if width else None)


def source_of(*words, **costs):
    config = read_recipe("digits", [*WORDS, *words])
    return PlanSource(config, build.open_data(config), profile(fingerprint=updates_fingerprint(config), **costs))


def planned(source, settings=None, batch=64):
    """A plan for four workers, with rates by rule; settings: more that it chose."""
    goal = PlanGoal(batch, source.config.train.batch, source.config.train.kimg)
    players = {Side.G: source.config.g, Side.D: source.config.d}
    only = Candidate("as configured", replace(game(), profile=source.profile))
    plan = choose_plan(source.profile, cluster(4), goal, lambda strategy: [only], players)
    more = tuple(PlannedSetting(key, value, "predicted") for key, value in (settings or {}).items())
    return replace(plan, settings={**plan.settings, **(settings or {})}, decisions=(*plan.decisions, *more))


def record_trials(monkeypatch):
    """Replace training; return the config of each trial in order. The largest rates score best."""
    configs = []

    def train(config, run, name, say):
        configs.append(config)
        return fd(1 / config.g.optimizer.lr)

    monkeypatch.setattr(probe_rates, "_train", train)
    return configs


def probed(source, plan, kimg=0.125, **more):
    """The plan after a probe, its lines of progress and its results."""
    said, reported = [], []
    found = probe_rates.probe_rates(source, plan, ProbeRequest(kimg, said.append, reported.append, **more))
    return found, said, reported
