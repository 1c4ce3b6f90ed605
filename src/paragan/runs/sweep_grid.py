"""Runs of a sweep from words such as `g.optimizer.lr=1e-4,2e-4`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from paragan.core.errors import ConfigError
from paragan.runs.sweep_plan import SweepRun

MOST_RUNS = 1000
_CLOSING = {"[": "]", "{": "}", '"': '"', "'": "'"}


def expand_grid(words: Sequence[str], seeds: Sequence[int]) -> tuple[tuple[str, ...], tuple[SweepRun, ...]]:
    """Return the words with one value, and a run for each combination of the others and the seeds.

    Commas inside of lists and quotes do not separate values.
    """
    axes = [[f"{key}={value}" for value in _values(text)] for key, _, text in (word.partition("=") for word in words)]
    common = tuple(axis[0] for axis in axes if len(axis) == 1)
    several = [axis for axis in axes if len(axis) > 1]
    if seeds:
        several.append([f"seed={seed}" for seed in seeds])
    runs = tuple(SweepRun(_name(settings), settings) for settings in product(*several))
    names = {run.name for run in runs}
    if len(runs) < 2 or len(runs) > MOST_RUNS:
        raise ConfigError(f"a sweep has 2 to {MOST_RUNS:,} runs, not {len(runs)}; pass key=a,b or --seeds 0-4")
    if len(names) < len(runs):
        raise ConfigError("two runs of the sweep have the same settings; give each value once")
    return common, runs


def _values(text: str) -> list[str]:
    """Return the parts of a text between commas outside of brackets and quotes."""
    parts = [""]
    closing: list[str] = []
    for character in text:
        if closing and character == closing[-1]:
            closing.pop()
        elif character in _CLOSING and (not closing or closing[-1] in "]}"):
            closing.append(_CLOSING[character])
        if character == "," and not closing:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _name(settings: Sequence[str]) -> str:
    """Return a folder's name, such as `g.optimizer.lr-1e-4_seed-0`."""
    return "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", setting).strip("-.") for setting in settings)[:200]
