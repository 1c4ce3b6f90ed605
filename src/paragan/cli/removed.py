"""Verbs and words of the command line that earlier versions had, and what to use instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paragan.core.command import program_command
from paragan.core.errors import ConfigError

_VERBS = {
    "sweep": "use tune, with values after commas: paragan tune RECIPE key=a,b --sampler grid",
    "bench": "use python -m benchmarks.NAME in a checkout",
}
_SERVE = "use python3 -m http.server --bind 127.0.0.1 --directory RUN; report.html updates itself"
_STORAGE = "leave it out, the time to read a batch is that of the profile"
_WORDS = {
    ("list", "transports"): "they are gloo and mpi",
    ("report", "--serve"): _SERVE,
    ("report", "--port"): _SERVE,
    ("plan", "--cost-per-hour"): "multiply the hours of the plan by the price",
    ("plan", "--hours"): "compare the hours of the plan with the limit",
    ("plan", "--timeline"): "use --plot",
    ("plan", "--probe-kimg"): "use paragan tune for learning rates",
    ("plan", "read_s"): _STORAGE,
    ("plan", "read_jitter"): _STORAGE,
    ("plan", "congested"): _STORAGE,
    ("plan", "congestion_s"): _STORAGE,
    ("plan", "congestion_factor"): _STORAGE,
    ("train", "--probe-kimg"): "use paragan tune for learning rates",
    ("train", "--halving"): "use paragan tune, which prunes trials by their scores",
    ("tune", "--halving"): "trials are pruned by their scores",
    ("tune", "--jobs"): "run the same command in several processes",
    ("tune", "--seeds"): "vary the seed: seed=0,1,2",
    ("tune", "--launch"): "run the same command in a job of the cluster",
}


def check_removed(words: Sequence[str]) -> None:
    """Raise `ConfigError` for a verb, an option or a key of an option that was removed."""
    verb = words[0] if words else ""
    if verb in _VERBS:
        raise ConfigError(f"{program_command()}: {verb} was removed; {_VERBS[verb]}")
    for word, following in pairwise([*words[1:], ""]):
        name, is_assigned, _ = word.partition("=")
        if (verb, name) in _WORDS:
            raise ConfigError(f"{program_command()} {verb}: {name} was removed; {_WORDS[verb, name]}")
        if (verb, name) == ("plan", "--profile") and (is_assigned or following.endswith(".json")):
            raise ConfigError(f"{program_command()} plan: --profile has no file; use --profile-file FILE")
