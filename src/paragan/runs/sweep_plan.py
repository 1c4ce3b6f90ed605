"""Plan of a sweep, and `sweep.json`: the plan and what successive halving selected."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paragan.core.errors import ConfigError
from paragan.core.files import read_bytes, write_text

_FILE = "sweep.json"
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep: its folder's name, and the settings that only it has."""

    name: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A sweep. kimg: length of a whole run. launch: target and options. jobs: runs at a time.

    settings: of all runs. halving_kimg: length after which the worse half ends, doubled for each
    further half; None: all runs train to the end.
    """

    recipe: str
    settings: tuple[str, ...]
    runs: tuple[SweepRun, ...]
    folder: Path
    kimg: float
    launch: tuple[str, ...] = ("local",)
    jobs: int = 1
    halving_kimg: float | None = None
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.halving_kimg is not None and not self.halving_kimg > 0:
            raise ConfigError(f"--halving {self.halving_kimg:g} is invalid; pass a number above 0")

    def job_name(self, run: SweepRun) -> str:
        """Return the name of a run's job, which no other run has."""
        return "sweep-" + hashlib.sha256(str(self.folder.resolve() / run.name).encode()).hexdigest()[:10]

    def log(self, run: SweepRun) -> Path:
        """Return the file of what a run prints, which exists once it has been started."""
        return self.folder / "logs" / f"{run.name}.log"

    def command(self, run: SweepRun, kimg: float) -> list[str]:
        """Return the command that trains a run to a length, or submits it."""
        length = [] if self.halving_kimg is None else [f"train.kimg={kimg:g}"]
        words = [self.recipe, *self.settings, *run.settings, *length, "--out", str(self.folder / run.name)]
        return [sys.executable, "-P", "-m", "paragan", "launch", *self.launch, "--name", self.job_name(run), *words]


@dataclass(frozen=True)
class Rung:
    """Runs that trained to one length. scores: of those that have one. selected: go further."""

    kimg: float
    runs: tuple[str, ...]
    scores: dict[str, float]
    selected: tuple[str, ...]


def recorded_rungs(sweep: Sweep) -> list[Rung]:
    """Return the rungs of an earlier call; their scores are those that the runs had then.

    Raises `ConfigError` if that was for another sweep: its runs have the same names.
    """
    try:
        found = json.loads(read_bytes(sweep.folder / _FILE, _MOST_BYTES))
        rungs = [Rung(x["kimg"], tuple(x["runs"]), x["scores"], tuple(x["selected"])) for x in found["rungs"]]
        changed = _changed(found, sweep)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if changed:
        problem = f"{sweep.folder} holds a sweep with another value of {', '.join(changed)}"
        raise ConfigError(f"{problem}; give the former values, or use another --out DIR")
    return rungs


def _changed(recorded: Mapping[str, Any], sweep: Sweep) -> list[str]:
    """Return which common settings differ so that recorded results are not those of the sweep.

    Runs may get longer, as at any resume.
    """
    before = _without_length(recorded["settings"])
    now = _without_length(sweep.settings)
    changed = sorted({word.partition("=")[0] for word in before ^ now})
    if recorded["kimg"] > sweep.kimg:
        changed.append("train.kimg")
    if recorded["recipe"] != sweep.recipe:
        changed.append("the recipe")
    if recorded["halving_kimg"] != sweep.halving_kimg:
        changed.append("--halving")
    return changed


def _without_length(settings: Sequence[str]) -> set[str]:
    return {str(word) for word in settings if not str(word).startswith("train.kimg=")}


def write_plan(sweep: Sweep, rungs: Sequence[Rung]) -> None:
    """Write `sweep.json`."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    plan = asdict(sweep) | {"folder": str(sweep.folder), "rungs": [asdict(rung) for rung in rungs]}
    write_text(sweep.folder / _FILE, json.dumps(plan, indent=1) + "\n")
