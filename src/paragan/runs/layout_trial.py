"""Measurement of layouts: operators of a recorded step, and what may make whole steps faster."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from paragan.config import RunConfig
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.options import LayoutOptions, PlayerOptions
from paragan.game.player import Player
from paragan.hardware import precision
from paragan.layers.operator_layout import run_merged
from paragan.runs.layout_search import LayoutCandidate, LayoutSearch, Say, step_seconds
from paragan.runs.trial_steps import TrialRun
from paragan.scaling.layout_advisor import GroupTimes, LayerTimes, NetworkTimes
from paragan.scaling.layout_plan import LayoutPlan, plan_layers
from paragan.scaling.operator_record import Operator, StepRecord, record_operators
from paragan.scaling.operator_times import (
    Place,
    differentiated_call,
    least_seconds,
    random_tensor,
    time_operator,
    variants,
)

OPERATORS_S = 30.0  # for all operators
_PARTS = (2, 4)
_PART_ROWS = 8  # micro-batches have a multiple of these rows


@dataclass(frozen=True)
class FoundLayout:
    """What a search found: the config, and the plan of the layers."""

    config: RunConfig
    plan: LayoutPlan


def find_layout(trial: TrialRun, config: RunConfig, say: Say) -> FoundLayout:
    """Measure layouts of a run; return its config with what makes steps faster, if anything does."""
    config = replace(config, train=replace(config.train, layout="fixed"))
    with torch.random.fork_rng(devices=[]):
        game = trial.game(config)
        step = trial.stepper_of(config, game)
        step()
        nets = {player.side: player.net for player in _players(game)}
        with record_operators(nets) as record:
            step()
        clock = partial(step_seconds, trial.device, step)
        step_s = min(clock(), clock())
        say("layout    timing operators")
        deadline_s = time.perf_counter() + OPERATORS_S
        measured = partial(_measure_network, config, trial, record, deadline_s)
        times = {side: measured(side, net) for side, net in nets.items()}
        search = LayoutSearch(trial, config, say)
        for candidate in _candidates(config, times, game, trial.rows, step_s):
            search.try_candidate(candidate)
    return FoundLayout(search.config, _plan(trial, config, search, times, step_s))


def _players(game: GAN) -> list[Player]:
    return [player for player in (game.g, game.d) if isinstance(player, Player)]


def _measure_network(
    config: RunConfig, trial: TrialRun, record: StepRecord, deadline_s: float, side: Side, net: nn.Module
) -> list[NetworkTimes]:
    """Return the times of a network's layers, in each open memory format; that of the run first."""
    options = options_of_side(config, side)
    formats = precision.layout_candidates(options.channels_last, net)
    dtype = precision.dtype_of(options.precision, net, trial.device)
    weight_dtype = next(net.parameters()).dtype
    multiples = precision.channel_multiples(trial.device)
    found = []
    for channels_last in formats:
        place = Place(trial.device, dtype, channels_last, weight_dtype)
        layers = tuple(
            _measure_layer(layer, operators, place, multiples, deadline_s)
            for layer, operators in record.layers(side).items()
        )
        groups = [_measure_group(net, group, layers, place, deadline_s) for group in record.siblings[side]]
        found.append(NetworkTimes(channels_last, layers, tuple(groups)))
    return found


def _measure_layer(
    layer: str, operators: Counter[Operator], place: Place, multiples: tuple[int, ...], deadline_s: float
) -> LayerTimes:
    """Time a layer; other layouts only if it always computes the same product."""
    main = max(operators, key=lambda one: (one.weight_grad, one.x_grad, operators[one]))
    is_one = len({(one.name, one.weight) for one in operators}) == 1
    options = variants(main, multiples) if is_one else variants(main, multiples)[:1]
    seconds = dict.fromkeys(options, 0.0)
    for operator, count in operators.items():
        for variant, one_s in time_operator(operator, place, options, deadline_s).items():
            seconds[variant] += count * one_s
    return LayerTimes(layer, main, operators.total(), seconds)


def _measure_group(
    net: nn.Module, names: tuple[str, ...], layers: tuple[LayerTimes, ...], place: Place, deadline_s: float
) -> GroupTimes:
    """Time siblings one by one and as one product, with their weights' parametrisations."""
    members = [net.get_submodule(name) for name in names]
    times = next(one for one in layers if one.layer == names[0])
    x = random_tensor(times.operator.x, place).requires_grad_(times.operator.x_grad)
    weights = list(nn.ModuleList(members).parameters())
    works = {
        "written": differentiated_call(lambda: [member(x) for member in members], [x, *weights], place),
        "merged": differentiated_call(lambda: run_merged(members, x), [x, *weights], place),
    }
    found = least_seconds(works, place.device, deadline_s)
    return GroupTimes(names, times.calls * found["written"], times.calls * found["merged"])


def _candidates(
    config: RunConfig, times: dict[Side, list[NetworkTimes]], game: GAN, rows: int, step_s: float
) -> list[LayoutCandidate]:
    """Return the changes that are worth a trial of whole steps, or say why they are not."""
    found = []
    for side, (now, *others) in times.items():
        for other in others:
            text = f"{side.value}.channels_last={str(other.channels_last).lower()}"
            gain = (now.laid_out_s - other.laid_out_s) / step_s
            settings: dict[str, Any] = {"channels_last": other.channels_last, "layout": other.layout}
            found.append(LayoutCandidate(text, partial(_with_settings, side, settings), gain))
        if options_of_side(config, side).layout is None and now.layout is not None:
            gain = (now.written_s - now.laid_out_s) / step_s
            text = f"{side.value}.layout of {describe_layout(now.layout)}"
            found.append(LayoutCandidate(text, partial(_with_layout, side, now), gain))
    for player in _players(game):
        is_open = options_of_side(config, player.side).micro_batches == 1 and not player.plain_network.mixes
        for parts in _PARTS if is_open else ():
            if rows % (parts * _PART_ROWS) == 0:
                text = f"{player.side.value}.micro_batches={parts}"
                found.append(LayoutCandidate(text, partial(_with_settings, player.side, {"micro_batches": parts})))
    return found


def describe_layout(layout: LayoutOptions) -> str:
    """Return the numbers of layers of each layout as text."""
    counts = {"padded": len(layout.pad), "with taps": len(layout.taps), "merged": sum(map(len, layout.merge))}
    return ", ".join(f"{count} layers {how}" for how, count in counts.items() if count)


def options_of_side(config: RunConfig, side: Side) -> PlayerOptions:
    """Return the options of a side."""
    return config.g if side is Side.G else config.d


def _with_settings(side: Side, settings: dict[str, Any], config: RunConfig) -> RunConfig:
    player = replace(options_of_side(config, side), **settings)
    return replace(config, g=player) if side is Side.G else replace(config, d=player)


def _with_layout(side: Side, times: NetworkTimes, config: RunConfig) -> RunConfig:
    """Return the config with a layout, unless another memory format was chosen with its layout."""
    if options_of_side(config, side).channels_last not in (None, times.channels_last):
        return config
    return _with_settings(side, {"layout": times.layout}, config)


def _plan(
    trial: TrialRun, before: RunConfig, search: LayoutSearch, times: dict[Side, list[NetworkTimes]], step_s: float
) -> LayoutPlan:
    tile = precision.channel_multiples(trial.device)[0]
    layers = []
    settings: dict[str, Any] = {}
    for side, found in times.items():
        chosen = options_of_side(search.config, side)
        after = next((one for one in found if one.channels_last == chosen.channels_last), found[0])
        layers += plan_layers(side.value, found[0], after, step_s, tile)
        for name in ("channels_last", "layout", "micro_batches"):
            value = getattr(chosen, name)
            if value != getattr(options_of_side(before, side), name):
                settings[f"{side.value}.{name}"] = value
    layers.sort(key=lambda one: -one.share_before)
    trials = tuple(search.trials)
    return LayoutPlan(str(trial.device), tile, trial.rows, step_s, search.gain, settings, trials, tuple(layers))
