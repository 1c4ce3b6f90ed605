"""Times of a few real steps of a recipe, in a limited time."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import lcm

import torch
from torch.autograd import DeviceType
from torch.profiler import profile

from paragan import build
from paragan.config import RunConfig
from paragan.core.types import Batch, Side
from paragan.extensions.planning.plan import MeasuredTimes, OperatorTime
from paragan.extensions.planning.profile_run import load_seconds
from paragan.game.gan import GAN
from paragan.hardware.executors import synchronized_time, time_call
from paragan.runs.shape_only_data import ShapeOnlySource, noise_batches

_BUDGET_S = 20.0  # for the steps
_MAX_STEPS = 8
_MAX_TURNS = 3
_MIN_ROWS = 2  # batch norm needs two samples


def measure_times(config: RunConfig, data: build.Data, device: torch.device) -> MeasuredTimes:
    """Time steps on noise, and the reading of batches; the batch grows while time is left.

    The first step of a batch size is not counted. No step is started that would exceed the budget.
    """
    with torch.random.fork_rng(devices=[]):
        game = build.gan(config.with_all_losses_active, data, device)
        step = partial(build.scheme(config).step, game)
        batch, first_s = _largest_in_time(config, data, device, step)
        batches = noise_batches(config, data, device, batch)
        num_steps = max(1, min(_MAX_STEPS, int(_BUDGET_S / 2 / first_s)))
        step_s = min(time_call(device, lambda: step(batches)) for _ in range(num_steps))
        turns = max(1, min(_MAX_TURNS, int(_BUDGET_S / 4 / first_s)))
        turn_s = {}
        for side in game.slots:
            update = partial(_update, game, side, batches)
            turn_s[side.value] = min(time_call(device, update) for _ in range(turns))
    images_per_s = batch * config.batches_per_step / step_s
    return MeasuredTimes(
        batch=batch,
        num_steps=num_steps,
        step_s=step_s,
        turn_s=turn_s,
        load_s=None if isinstance(data.train, ShapeOnlySource) else load_seconds(config, data, device, batch),
        images_per_s=images_per_s,
        kimg=config.train.kimg,
        hours=config.train.kimg * 1000 / images_per_s / 3600,
    )


def profile_operators(
    config: RunConfig, data: build.Data, device: torch.device, batch: int
) -> Mapping[str, tuple[OperatorTime, ...]]:
    """Return the times of torch's operators in the turn of each side, the slowest first, by torch's profiler.

    On an accelerator these are the seconds of their kernels. A turn is a backward pass and a step of
    the optimiser, too; its first one is not counted.
    """
    with torch.random.fork_rng(devices=[]):
        game = build.gan(config.with_all_losses_active, data, device)
        batches = noise_batches(config, data, device, batch)
        sides = dict.fromkeys((Side.D, Side.G, *game.slots))  # each once, D's first
        return {side.value: _profile(device, partial(_update, game, side, batches)) for side in sides}


def _profile(device: torch.device, run: Callable[[], None]) -> tuple[OperatorTime, ...]:
    """Return the times of the operators in a call, the slowest first."""
    run()  # the first call is not counted
    is_cpu = device.type == "cpu"
    with profile() as profiled:
        for _ in range(_MAX_TURNS):
            run()
        synchronized_time(device)
    times = []
    for event in profiled.key_averages():
        micros = event.self_cpu_time_total if is_cpu else event.self_device_time_total
        if micros > 0 and event.device_type == DeviceType.CPU:  # others are the kernels of these
            times.append(OperatorTime(event.key, event.count / _MAX_TURNS, micros / 1e6 / _MAX_TURNS))
    return tuple(sorted(times, key=lambda time: -time.seconds))


def _largest_in_time(
    config: RunConfig, data: build.Data, device: torch.device, step: Callable[[Iterator[Batch]], object]
) -> tuple[int, float]:
    """Return the batch to measure, up to that of the run, and the seconds of a step of it."""
    parts = lcm(*(player.micro_batches for player in config.player_options.values()))
    batch = min(config.train.batch, _MIN_ROWS * parts)
    spent_s = 0.0
    while True:
        batches = noise_batches(config, data, device, batch)
        warm_up_s = time_call(device, lambda: step(batches))  # noqa: B023  # called at once
        step_s = time_call(device, lambda: step(batches))  # noqa: B023
        spent_s += warm_up_s + step_s
        larger = min(config.train.batch, 4 * batch)
        if batch == config.train.batch or 2 * step_s * larger / batch > _BUDGET_S / 4 - spent_s:
            return batch, max(step_s, 1e-6)
        batch = larger


def _update(game: GAN, side: Side, batches: Iterator[Batch]) -> None:
    game.slots[side].update(game.turn(side, next(batches)), against=game.d if side is Side.G else game.g)
