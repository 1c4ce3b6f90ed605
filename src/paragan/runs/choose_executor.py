"""Choice of the executor for `train.executor: auto`, by timing executors and precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import nn

from paragan import build
from paragan.config import RunConfig, outside_names, read_recipe
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import World
from paragan.core.errors import ConfigError, is_out_of_memory
from paragan.core.network_factory import Model
from paragan.core.types import Side
from paragan.game.options import PlayerOptions
from paragan.hardware import executors, precision
from paragan.runs.folder import RunFolder
from paragan.runs.trial_steps import Timing, TrialRun

BUDGET_S = 20.0  # for all eager candidates
_ROUNDS = 4
_OPEN = {"precision": "auto", "channels_last": None}  # per-player settings and their open values
WORTH_S = 1200.0  # shortest run to compile for: compiling takes a minute or two, without a time-out

Say = Callable[[str], None]
Measure = Callable[[RunConfig, float], Timing]


def choose_executor(
    config: RunConfig,
    out: Path,
    anew: bool,
    world: World,
    say: Say,
    model: Model | None = None,
    measure: Measure | None = None,
) -> RunConfig:
    """Return the config with the settings that its executor `auto` leaves open.

    Any other config is returned unchanged. Collective: every rank must call this. A run that
    resumes in `out` reuses its recorded settings, unless `anew`. Otherwise rank 0 measures, 20 s at
    most unless it compiles. measure: times a config within a budget of seconds; None: a `TrialRun`.
    """
    if config.train.executor != "auto":
        return config

    def decided() -> Any:
        if not world.is_main:
            return None
        before = None if anew else _before(config, out)
        return _left_open(before or _fastest(config, world, say, model, measure))

    return _with(config, decided() if world.size == 1 else run_on_all_ranks(world, decided)[0])


def _before(config: RunConfig, out: Path) -> RunConfig | None:
    """Return the config of the run in `out`, if any; a later check refuses an unreadable one."""
    kept = RunFolder(out).config
    if not kept.exists():
        return None
    try:
        return read_recipe(str(kept), outside=outside_names(config))
    except ConfigError:
        return replace(config, train=replace(config.train, executor="eager"))


def _fastest(config: RunConfig, world: World, say: Say, model: Model | None, measure: Measure | None) -> RunConfig:
    """Measure precisions and layouts first, then compile the best if the run is long enough."""
    plain = replace(config, train=replace(config.train, executor="eager"))
    if build.scheme(config).is_concurrent:
        found = f"players of scheme {config.scheme.name} do not take turns"
        say(f"executor  eager: {found}, and are not measured")
        return plain
    bench = TrialRun(config, world, model)
    trial = _Trial(measure or bench, len(config.max_steps), say)
    written = list(candidates(plain, bench.device, bench.networks()))
    for done in range(1, _ROUNDS + 1):  # in rounds: other load affects all candidates
        for number, way in enumerate(written, start=1):
            trial.of(way, until_s=BUDGET_S * (number / len(written) if done == 1 else 1))
        if trial.spent_s * (done + 1) / done > BUDGET_S:
            break
    trial.print_times()
    best = trial.best
    if (why := _uncompiled(trial.run_s, world)) is not None:
        say(f"executor  compile: not tried, {why}")
    else:
        names: tuple[Literal["compile", "graphs"], ...] = ("compile", "graphs")
        for name in names if executors.can_record(bench.device) else names[:1]:
            trial.of(replace(best, train=replace(best.train, executor=name)), until_s=float("inf"))
        trial.print_times()
    say(f"executor  chosen: {name_of(trial.best)}")
    return trial.best


class _Trial:
    """Shortest time of each candidate; candidates that do not fit or compile are left out."""

    def __init__(self, measure: Measure, num_steps: int, say: Say) -> None:
        self.measure = measure
        self.num_steps = num_steps
        self.say = say
        self.spent_s = 0.0
        self._found: dict[str, tuple[Timing, RunConfig]] = {}
        self._left: dict[str, Exception | None] = {}
        self._printed: set[str] = set()

    def of(self, config: RunConfig, until_s: float) -> None:
        """Measure a config again, unless earlier trials have taken longer than `until_s`."""
        name = name_of(config)
        began = perf_counter()
        if name in self._left:
            return
        if self._found and self.spent_s >= until_s:
            if name not in self._found:
                self._leave(name, f"not tried, {self.spent_s:.0f} s are over")
            return
        try:
            measured = self.measure(config, until_s - self.spent_s)
        except Exception as error:
            if not (isinstance(error, ConfigError) and self._found) and not is_out_of_memory(error):
                raise
            why = executors.error_line(error.__cause__ or error)
            # a traceback would hold the memory that did not fit
            self._leave(name, f"left out ({why})", error.with_traceback(None))
            return
        finally:
            self.spent_s += perf_counter() - began
        before = self._found.get(name, (measured, config))[0]
        self._found[name] = min(before, measured, key=lambda one: one.step_s), config

    def print_times(self) -> None:
        """Print a line for each measured candidate, once."""
        for name, (measured, _) in self._found.items():
            if name not in self._printed:
                seconds = measured.set_up_s
                compiled = f", after {seconds:.0f} s of compiling" if seconds else ""
                self.say(f"executor  {name}: {1000 * measured.step_s:.2f} ms a step{compiled}")
                self._printed.add(name)

    @property
    def best(self) -> RunConfig:
        """Config with the shortest forecast of a whole run."""
        return self._least[1]

    @property
    def run_s(self) -> float:
        """Forecast of a whole run with the best config, in seconds."""
        return self._least[0]

    @property
    def _least(self) -> tuple[float, RunConfig]:
        if not self._found:
            raise next(error for error in self._left.values() if error is not None)
        found = self._found.values()
        forecasts = [(one.set_up_s + one.step_s * self.num_steps, config) for one, config in found]
        return min(forecasts, key=lambda forecast: forecast[0])

    def _leave(self, name: str, why: str, error: Exception | None = None) -> None:
        self._left[name] = error
        self.say(f"executor  {name}: {why}")


def candidates(config: RunConfig, device: torch.device, nets: Mapping[Side, nn.Module]) -> Iterator[RunConfig]:
    """Yield every open precision and memory layout, of both sides together, the likeliest first."""
    sides = {Side.G: config.g, Side.D: config.d}
    open_to: dict[str, dict[Side, tuple[Any, ...]]] = {
        "precision": {side: precision.precision_candidates(own.precision, device) for side, own in sides.items()},
        "channels_last": {
            side: precision.layout_candidates(own.channels_last, nets[side]) for side, own in sides.items()
        },
    }
    for numbers in product(*(range(max(map(len, choices.values()))) for choices in open_to.values())):
        g, d = (
            replace(own, **{key: _at(open_to[key][side], n) for key, n in zip(open_to, numbers, strict=True)})
            for side, own in sides.items()
        )
        yield replace(config, g=g, d=d)


def _at(choices: tuple[Any, ...], number: int) -> Any:
    """Return the choice with this number, or the last one."""
    return choices[min(number, len(choices) - 1)]


def _uncompiled(run_s: float, world: World) -> str | None:
    if world.size > 1:
        return "other ranks would wait for it: set train.executor=compile"
    if run_s < WORTH_S:
        return f"{run_s:.0f} s of steps are too few: compiling takes a minute or two"
    return None


def name_of(config: RunConfig) -> str:
    """Return the executor, precision and layout of a config as text."""
    players = (config.g, config.d)
    texts = [f"{own.precision}{' channels-last' * bool(own.channels_last)}" for own in players]
    both = texts[0] if texts[0] == texts[1] else f"G {texts[0]}, D {texts[1]}"
    return f"{config.train.executor} {both}"


def _left_open(config: RunConfig) -> dict[str, Any]:
    """Return the chosen settings, as JSON."""
    sides = {"g": config.g, "d": config.d}
    players = {name: {key: getattr(own, key) for key in _OPEN} for name, own in sides.items()}
    return {"executor": config.train.executor, **players}


def _with(config: RunConfig, found: Mapping[str, Any]) -> RunConfig:
    """Return the config with the chosen settings; those that were set are unchanged."""

    def settled(own: PlayerOptions, way: Mapping[str, Any]) -> PlayerOptions:
        kept = [key for key, value in _OPEN.items() if getattr(own, key) == value]
        return replace(own, **{key: way[key] for key in kept})

    train = replace(config.train, executor=found["executor"])
    g = settled(config.g, found["g"])
    return replace(config, train=train, g=g, d=settled(config.d, found["d"]))
