"""Choice of the executor for `train.executor: auto`, by timing executors and precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import nn

from paragan import build
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import NAMES_ONLY
from paragan.core.collective import run_on_main
from paragan.core.dist import World
from paragan.core.errors import ConfigError, is_out_of_memory
from paragan.core.network_factory import Model
from paragan.core.types import Side
from paragan.game.options import PlayerOptions
from paragan.hardware import executors, precision
from paragan.runs.trial_steps import Timing, TrialRun

BUDGET_S = 20.0  # for all eager candidates
_ROUNDS = 4
WORTH_S = 1200.0  # shortest run to compile for: compiling takes a minute or two, without a time-out

Say = Callable[[str], None]
Measure = Callable[[RunConfig, float], Timing]


def choose_executor(
    config: RunConfig,
    out: Path,
    fresh: bool,
    world: World,
    say: Say,
    model: Model | None = None,
    measure: Measure | None = None,
) -> RunConfig:
    """Return the config with the settings that its executor `auto` leaves open.

    Any other config is returned unchanged. Collective: every rank must call this. A run that
    resumes in `out` reuses its recorded settings, unless `fresh`. Otherwise rank 0 measures, 20 s at
    most unless it compiles. measure: times a config within a budget of seconds; None: a `TrialRun`.
    """
    if config.train.executor != "auto":
        return config

    def choose() -> dict[str, Any]:
        chosen = (None if fresh else recorded_config(config, out)) or _fastest(config, world, say, model, measure)
        return {"executor": chosen.train.executor, "g": _open_settings(chosen.g), "d": _open_settings(chosen.d)}

    found = run_on_main(world, choose)
    train = replace(config.train, executor=found["executor"])
    g = with_open_settings(config.g, found["g"])
    return replace(config, train=train, g=g, d=with_open_settings(config.d, found["d"]))


def recorded_config(config: RunConfig, out: Path) -> RunConfig | None:
    """Return the config of the run in `out`, if any; a later check refuses an unreadable one."""
    path = out / "config.yaml"
    if not path.exists():
        return None
    try:
        return read_recipe(str(path), outside=NAMES_ONLY)
    except ConfigError:
        return replace(config, train=replace(config.train, executor="eager"))


def _fastest(config: RunConfig, world: World, say: Say, model: Model | None, measure: Measure | None) -> RunConfig:
    """Measure precisions and layouts first, then compile the best if the run is long enough.

    Players that train at the same time are measured in turns.
    """
    is_concurrent = build.scheme(config).is_concurrent
    plain = build.in_turns(replace(config, train=replace(config.train, executor="eager")))
    bench = TrialRun(config, world, model)
    trial = _Trial(measure or bench, len(config.max_steps), say, is_concurrent and world.size > 1)
    eager = list(candidates(plain, bench.device, bench.networks()))
    for done in range(1, _ROUNDS + 1):  # in rounds: other load affects all candidates
        for number, candidate in enumerate(eager, start=1):
            trial.measure(candidate, until_s=BUDGET_S * (number / len(eager) if done == 1 else 1))
        if trial.spent_s * (done + 1) / done > BUDGET_S:
            break
    trial.print_times()
    if not trial.has_found and trial.may_find_none:  # a rank of the run has one player
        say("executor  eager: both players do not fit into one process, and are not measured")
        return plain
    run_s, best = trial.best()
    if (why := _uncompiled(run_s, world, is_concurrent)) is not None:
        say(f"executor  compile: not tried, {why}")
    else:
        names: tuple[Literal["compile", "graphs"], ...] = ("compile", "graphs")
        for name in names if executors.can_record(bench.device) else names[:1]:
            trial.measure(replace(best, train=replace(best.train, executor=name)), until_s=float("inf"))
        trial.print_times()
        best = trial.best()[1]
    say(f"executor  chosen: {name_of(best)}")
    return best


class _Trial:
    """Shortest time of each candidate; candidates that do not fit or compile are left out.

    may_find_none: whether the run may fit where no candidate does.
    """

    def __init__(self, time_steps: Measure, num_steps: int, say: Say, may_find_none: bool) -> None:
        self.time_steps = time_steps
        self.num_steps = num_steps
        self.say = say
        self.may_find_none = may_find_none
        self.spent_s = 0.0
        self._found: dict[str, tuple[Timing, RunConfig]] = {}
        self._left_out: dict[str, Exception | None] = {}
        self._num_printed = 0

    def measure(self, config: RunConfig, until_s: float) -> None:
        """Measure a config again, unless earlier trials have taken longer than `until_s`."""
        name = name_of(config)
        if name in self._left_out:
            return
        if self._found and self.spent_s >= until_s:
            if name not in self._found:
                self._leave_out(name, f"not tried, {self.spent_s:.0f} s are over")
            return
        began = perf_counter()
        try:
            timing = self.time_steps(config, until_s - self.spent_s)
        except Exception as error:
            if not (isinstance(error, ConfigError) and self._found) and not is_out_of_memory(error):
                raise
            why = executors.error_line(error.__cause__ or error)
            # a traceback would hold the memory that did not fit
            self._leave_out(name, f"left out ({why})", error.with_traceback(None))
            return
        finally:
            self.spent_s += perf_counter() - began
        before = self._found.get(name, (timing, config))[0]
        self._found[name] = min(before, timing, key=lambda one: one.step_s), config

    def print_times(self) -> None:
        """Print a line for each candidate that was measured since the last call."""
        for name, (timing, _) in list(self._found.items())[self._num_printed :]:
            compiled = f", after {timing.set_up_s:.0f} s of compiling" if timing.set_up_s else ""
            self.say(f"executor  {name}: {1000 * timing.step_s:.2f} ms a step{compiled}")
        self._num_printed = len(self._found)

    @property
    def has_found(self) -> bool:
        """Whether some candidate was measured."""
        return bool(self._found)

    def best(self) -> tuple[float, RunConfig]:
        """Return the shortest forecast of a whole run in seconds, and its config."""
        if not self._found:
            raise next(error for error in self._left_out.values() if error is not None)
        timings = self._found.values()
        forecasts = [(timing.set_up_s + timing.step_s * self.num_steps, config) for timing, config in timings]
        return min(forecasts, key=lambda forecast: forecast[0])

    def _leave_out(self, name: str, why: str, error: Exception | None = None) -> None:
        self._left_out[name] = error
        self.say(f"executor  {name}: {why}")


def candidates(config: RunConfig, device: torch.device, nets: Mapping[Side, nn.Module]) -> Iterator[RunConfig]:
    """Yield every open precision and memory layout, of both sides together, the likeliest first."""
    g = config.g
    d = config.d
    precisions = _pairs(
        precision.precision_candidates(g.precision, device, Side.G),
        precision.precision_candidates(d.precision, device, Side.D),
    )
    layouts = _pairs(
        precision.layout_candidates(g.channels_last, nets[Side.G]),
        precision.layout_candidates(d.channels_last, nets[Side.D]),
    )
    for (g_precision, d_precision), (g_layout, d_layout) in product(precisions, layouts):
        yield replace(
            config,
            g=replace(g, precision=g_precision, channels_last=g_layout),
            d=replace(d, precision=d_precision, channels_last=d_layout),
        )


def _pairs(g: Sequence[Any], d: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the choices of both sides by number; the shorter list repeats its last one."""
    return [(g[min(n, len(g) - 1)], d[min(n, len(d) - 1)]) for n in range(max(len(g), len(d)))]


def _uncompiled(run_s: float, world: World, is_concurrent: bool) -> str | None:
    """Return why compiling is not tried; None if it is. is_concurrent: of the scheme."""
    if is_concurrent:
        return "the players train at the same time"
    if world.size > 1:
        return "other ranks would wait for it: set train.executor=compile"
    if run_s < WORTH_S:
        return f"{run_s:.0f} s of steps are too few: compiling takes a minute or two"
    return None


def name_of(config: RunConfig) -> str:
    """Return the executor, precision and layout of a config as text."""
    texts = [f"{player.precision}{' channels-last' * bool(player.channels_last)}" for player in (config.g, config.d)]
    both = texts[0] if texts[0] == texts[1] else f"G {texts[0]}, D {texts[1]}"
    return f"{config.train.executor} {both}"


def _open_settings(player: PlayerOptions) -> dict[str, Any]:
    return {"precision": player.precision, "channels_last": player.channels_last}


def with_open_settings(player: PlayerOptions, chosen: Mapping[str, Any]) -> PlayerOptions:
    """Return the player with the chosen settings; those that a user set are unchanged."""
    defaults = PlayerOptions()
    is_open = {name: getattr(player, name) == getattr(defaults, name) for name in chosen}
    return replace(player, **{name: value for name, value in chosen.items() if is_open[name]})
