"""Layout of the networks for `train.layout: auto`: memory format and padded channels, as measured before a run.

Each candidate is tried in whole steps of the run's own networks and shapes, in turns with the fastest
so far, and stays if it is faster by more than noise.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paragan import build
from paragan.build.execution import check_executor
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import NAMES_ONLY
from paragan.core.capabilities import Capability
from paragan.core.collective import run_on_main
from paragan.core.dist import World
from paragan.core.errors import ConfigError, is_out_of_memory
from paragan.core.network_factory import Model
from paragan.core.types import Rows, Side
from paragan.game.options import PlayerOptions
from paragan.hardware import device as devices, precision
from paragan.hardware.executors import error_line, time_call
from paragan.layers.padded_channels import pad_channels
from paragan.runs.shape_only_data import noise_batches

_SETTINGS = ("channels_last", "channel_multiple")
_GAIN = 0.015  # least median gain of the steps of a game
_GAMES = 3  # built for each comparison
_PAIRS = 4  # of steps of each game; of all pairs, one may be in favour of the fastest so far
_BUDGET_S = 180.0  # after which no candidate is begun

Log = Callable[[str], None]
Step = Callable[[], float]


class TrialRun:
    """Steps of the run without its data, folder and other ranks; the run's state does not change.

    Inputs are noise, or the tensors of a program, as many rows as this rank will have. model: as
    `build.network_factory` takes it.
    """

    def __init__(self, config: RunConfig, world: World, model: Model | None) -> None:
        self.config = config
        self.model = model
        self.ranks = world.size
        is_alone = world.group is None
        self.device = devices.select_device(config.train.threads) if is_alone else world.device
        num_ranks = len(build.scheme(config).assign(world.size)[Side.D])
        self.rows = Rows(step=0, first=0, count=config.train.batch, total=config.train.batch).shares(num_ranks)[0].count
        self.data = build.open_data(config, model)

    def networks(self) -> Mapping[Side, nn.Module]:
        """Return the networks, for inspection."""
        make = partial(build.network_factory, self.config, source=self.data.train, device=self.device, model=self.model)
        return {side: make(side=side).construct() for side in Side}

    def stepper(self, config: RunConfig) -> Callable[[], object]:
        """Return a function that makes one step of this rank's rows, with separate players."""
        train = replace(config.train, batch=self.rows)
        config = replace(config.with_all_losses_active, train=train)
        game = build.gan(config, self.data, self.device, model=self.model)
        check_executor(config, game, self.ranks)
        return partial(build.scheme(config).step, game, noise_batches(self.config, self.data, self.device, self.rows))


def choose_layout(
    config: RunConfig, out: Path, fresh: bool, world: World, log: Log, model: Model | None = None
) -> RunConfig:
    """Return the config with the settings that its layout `auto` leaves open.

    Any other config is returned unchanged. Collective: every rank must call this. A run that
    resumes in `out` reuses its recorded settings, unless `fresh`; otherwise rank 0 measures.
    """
    if config.train.layout != "auto":
        return config
    plain = replace(config, train=replace(config.train, layout="plain"))

    def choose() -> dict[str, dict[str, Any]]:
        fastest = (None if fresh else _recorded(plain, out)) or _measured(plain, world, log, model)
        return {key: {name: getattr(fastest.player_options[key], name) for name in _SETTINGS} for key in ("g", "d")}

    settings = run_on_main(world, choose)
    return replace(plain, g=_completed(config.g, settings["g"]), d=_completed(config.d, settings["d"]))


def _recorded(config: RunConfig, out: Path) -> RunConfig | None:
    """Return the config of the run in `out`, if any; of an unreadable one, which a later check refuses, this config."""
    path = out / "config.yaml"
    try:
        return read_recipe(str(path), outside=NAMES_ONLY) if path.exists() else None
    except ConfigError:
        return config


def _completed(player: PlayerOptions, settings: Mapping[str, Any]) -> PlayerOptions:
    """Return the player with these settings; those that a user set are unchanged."""
    defaults = PlayerOptions()
    unset = [name for name in settings if getattr(player, name) == getattr(defaults, name)]
    return replace(player, **{name: settings[name] for name in unset})


def _measured(config: RunConfig, world: World, log: Log, model: Model | None) -> RunConfig:
    """Measure steps in turns, unless networks are compiled, recomputed or sharded."""
    if (why := _why_plain(config, world)) is not None:
        log(f"layout    plain: {why}")
        return config
    try:
        return fastest_layout(TrialRun(config, world, model), build.with_synchronous_scheme(config), log)
    except Exception as error:
        has_one_player = build.scheme(config).is_concurrent and world.size > 1  # on each rank
        if not (has_one_player and is_out_of_memory(error)):
            raise
    log("layout    plain: the two players together do not fit into one process, so nothing is measured")
    return config


def _why_plain(config: RunConfig, world: World) -> str | None:
    if config.train.executor != "eager":
        return f"the executor {config.train.executor} chooses layouts itself"
    if config.g.recompute or config.d.recompute:
        return "activations that are recomputed are not padded"
    strategies = [build.strategy_on_ranks(player, world.device) for player in (config.g, config.d)]
    if world.size > 1 and any(Capability.WHOLE_WEIGHTS not in strategy.capabilities for strategy in strategies):
        return "sharded weights are not padded"
    return None


def fastest_layout(trial: TrialRun, config: RunConfig, log: Log) -> RunConfig:
    """Measure steps; return the config with what makes them faster, if anything does."""
    deadline_s = time.perf_counter() + _BUDGET_S
    for side, setting, value in _candidates(config, trial.networks(), trial.device):
        text = f"{side.value}.{setting}={str(value).lower()}"
        changed = config.with_player(side.value, replace(config.player_options[side.value], **{setting: value}))
        if time.perf_counter() > deadline_s:
            log(f"layout    {text}: not tried, the time limit of {_BUDGET_S:.0f} s is over")
            continue
        try:
            with torch.random.fork_rng(devices=[]):  # a device's is seeded by every turn that draws
                gain = step_gain(lambda: (_warm_step(trial, config), _warm_step(trial, changed)))  # noqa: B023
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            log(f"layout    {text}: not chosen, out of memory ({error_line(error)})")
            continue
        if gain is None:
            log(f"layout    {text}: not faster")
        else:
            log(f"layout    {text}: chosen, a step takes {gain:.1%} less")
            config = changed
    return config


def _candidates(
    config: RunConfig, nets: Mapping[Side, nn.Module], device: torch.device
) -> Iterator[tuple[Side, str, Any]]:
    """Yield side, setting and value of each candidate. Networks are padded to find what that changes."""
    multiple = precision.channel_multiple(device)
    for side, net in nets.items():
        player = config.player_options[side.value]
        for value in precision.layout_candidates(player.channels_last, net)[1:]:  # after the present one
            yield side, "channels_last", value
        changes = pad_channels(net, multiple) if player.channel_multiple == 1 else 0
        if changes:
            yield side, "channel_multiple", multiple


def _warm_step(trial: TrialRun, config: RunConfig) -> Step:
    """Build a game and make its first step; return a function that makes a step and returns its seconds."""
    step = trial.stepper(config)
    step()
    return partial(time_call, trial.device, step)


def step_gain(make_steps: Callable[[], tuple[Step, Step]]) -> float | None:
    """Time steps in pairs; return the median gain of the other, None if it is not clearly faster.

    make_steps: returns the steps of two new games, the fastest so far and the other; both are in memory, as their
    steps alternate. The same game made twice may differ by some per cent, by where its tensors are: so several are
    made. It ends with the second pair in favour of the fastest so far.
    """
    gains: list[float] = []
    num_slower = 0
    for _ in range(_GAMES):
        best_step, other_step = make_steps()
        ratios = []
        for number in range(_PAIRS):
            # each of them first as often, because the second finds the caches as the first left them
            in_order = (best_step, other_step) if number % 2 == 0 else (other_step, best_step)
            seconds = [step() for step in in_order]
            ratios.append(seconds[1] / seconds[0] if number % 2 == 0 else seconds[0] / seconds[1])
            num_slower += ratios[-1] >= 1
            if num_slower > 1:
                return None
        gains.append(1 - statistics.median(ratios))
    return statistics.median(gains) if min(gains) >= _GAIN else None
