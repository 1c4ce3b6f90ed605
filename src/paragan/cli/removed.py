"""Verbs and options that earlier versions had, and what to use instead."""

from __future__ import annotations

_VERBS = {
    "sweep": "use tune, with values after commas: paragan tune RECIPE key=a,b --sampler grid",
    "bench": "use python -m benchmarks.NAME in a checkout",
}
_SERVE = "use python3 -m http.server --bind 127.0.0.1 --directory RUN; report.html updates itself"
_OPTIONS = {
    ("report", "--serve"): _SERVE,
    ("report", "--port"): _SERVE,
    ("plan", "--cost-per-hour"): "multiply the hours of the plan by the price",
    ("plan", "--hours"): "compare the hours of the plan with the limit",
    ("plan", "--timeline"): "use --plot",
    ("plan", "--probe-kimg"): "use paragan tune for learning rates",
    ("train", "--probe-kimg"): "use paragan tune for learning rates",
    ("tune", "--halving"): "trials are pruned by their scores",
    ("tune", "--jobs"): "run the same command in several processes",
    ("tune", "--seeds"): "vary the seed: seed=0,1,2",
    ("tune", "--launch"): "run the same command in a job of the cluster",
}


def removed_verb(name: str) -> str | None:
    """Return what to do instead of a verb that was removed; None for others."""
    return _VERBS.get(name)


def removed_option(verb: str, option: str) -> str | None:
    """Return what to do instead of an option that was removed; None for others."""
    return _OPTIONS.get((verb, option))
