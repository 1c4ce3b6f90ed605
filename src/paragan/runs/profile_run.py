"""Measurement of a run's profile: real updates on noise at several batch sizes, in one process."""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import lcm
from typing import Any

import torch

from paragan import build
from paragan.build.data import batch_stream, sample_name
from paragan.config import RunConfig, to_tree
from paragan.core.network_factory import Model
from paragan.core.roles import colocated_roles
from paragan.core.types import Batch, Side
from paragan.distributed.launch.join import lone_rank
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.hardware import device as devices
from paragan.hardware.executors import synchronized_time
from paragan.runs.busy_host import measure_with_neighbours, workers_of_host
from paragan.runs.measured_times import noise_batches
from paragan.runs.norm_collectives import count_norms, fakes_of_turn
from paragan.runs.shape_only_data import ShapeOnlySource
from paragan.scaling.profile import Curve, PlayerProfile, RunProfile

_REPEATS = 12
_FEWEST_PERIODS = 3
_MOST_PERIOD = 32
_MOST_SIZES = 4
_FEWEST_ROWS = 2  # batch norm needs two samples
_OF_THE_MODEL = ("data", "model", "loss", "penalties", "augment", "balancer")
Say = Callable[[str], None]


def measure_profile(
    config: RunConfig,
    recipe: str,
    found: build.Data,
    memory: Callable[[int], int],
    rows: Sequence[int] = (),
    say: Say = lambda line: None,
    model: Model | None = None,
) -> RunProfile:
    """Time the updates of one worker at several batch sizes, and count what they would exchange.

    model: networks from memory, instead of the config's. rows: batch sizes to measure; the
    config's, its half, quarter and eighth unless given. memory: bytes at the peak of a step of a
    batch size. Needs some seconds, and a machine that does nothing else. On a CPU, steps are also
    timed while all cores are busy (`busy_host.py`), unless the networks are from memory.
    """
    device = devices.select_device(config.train.threads)
    sizes = sorted(set(rows)) or _batch_sizes(config)
    one = _on_one_worker(config)
    is_shared = device.type == "cpu" and model is None and sample_name(config, None) is None
    busy_workers = workers_of_host(torch.get_num_threads()) if is_shared else 1
    with torch.random.fork_rng(devices=[]):
        measured = _measure_sizes(one, found, model, device, sizes, busy_workers - 1, say)
    about = (recipe, one.model.name, updates_fingerprint(config), devices.machine(device), str(device))
    sample_bytes, fake_bytes = _row_bytes(next(noise_batches(one, found, device, 1)))
    return RunProfile(
        *about,
        torch.get_num_threads(),
        batch=one.train.batch,
        d_updates=one.d.updates_per_step,
        sample_bytes=sample_bytes,
        fake_bytes=fake_bytes,
        memory=Curve(tuple(sizes), tuple(float(memory(size)) for size in sizes)),
        busy_workers=busy_workers,
        **measured,
    )


def _measure_sizes(
    config: RunConfig,
    found: build.Data,
    model: Model | None,
    device: torch.device,
    sizes: Sequence[int],
    neighbours: int,
    say: Say,
) -> dict[str, Any]:
    """Return what was measured at all batch sizes, by its names in a profile."""
    alone = build.gan(config, found, device, model=model)
    counts = count_norms(config, alone, noise_batches(config, found, device, sizes[0]))
    alone_s = [_step_s(config, found, alone, device, size) for size in sizes]
    with lone_rank(device) as world:
        game = build.gan(config, found, device, colocated_roles(world), model)
        costs = [_measure(config, found, game, device, size, say) for size in sizes]
        busy_s = [cost.step_s for cost in costs]
        if neighbours:
            step_s = partial(_step_s, config, found, game, device)
            busy_s = measure_with_neighbours(config, found, neighbours, sizes, step_s, say)
        players = {side.value: _player(game, side, sizes, costs, counts[side.value]) for side in Side}
    values = {
        "generate_s": [cost.generate_s for cost in costs],
        "step_s": [cost.step_s for cost in costs],
        "load_s": [cost.load_s for cost in costs],
        "cpu_share": [min(1.0, cost.cpu_share) for cost in costs],
        "alone_step_s": alone_s,
        "busy_step_s": busy_s,
    }
    curves = {name: Curve(tuple(sizes), tuple(each)) for name, each in values.items()}
    return {**players, **curves, "generate_norms": counts["generate"][0]}


def _on_one_worker(config: RunConfig) -> RunConfig:
    """Return the config of one eager process whose players take turns; D trains in each or in none."""
    one = replace(config, devices=None, train=replace(config.train, executor="eager"))
    every_turn = replace(one.d, strategy=None, update_probability=1.0)
    one = replace(one.with_started_terms, g=replace(one.g, strategy=None), d=every_turn)
    return build.in_turns(one)


def _step_s(config: RunConfig, found: build.Data, game: GAN, device: torch.device, size: int) -> float:
    """Return the mean seconds of a step."""
    batches = noise_batches(config, found, device, size)
    scheme = build.scheme(config)
    period = lcm(*(_period(game, side) for side in Side))
    return _seconds(device, lambda: scheme.step(game, batches), period)


def _row_bytes(batch: Batch) -> tuple[int, int]:
    """Return the bytes of one real sample, and of one fake with its label."""
    sizes = {name: tensor.element_size() * tensor[0].numel() for name, tensor in batch.tensors.items()}
    return sum(sizes.values()), sizes["image"] + sizes.get("label", 0)


@dataclass(frozen=True)
class _Costs:
    """Seconds of the parts of a step of one batch size."""

    generate_s: float
    update_s: Mapping[Side, float]
    step_s: float
    load_s: float
    cpu_share: float


def _measure(config: RunConfig, found: build.Data, game: GAN, device: torch.device, size: int, say: Say) -> _Costs:
    say(f"measuring updates of {size:,} samples")
    batches = noise_batches(config, found, device, size)
    scheme = build.scheme(config)
    turn = game.d_turn(next(batches))
    fakes = fakes_of_turn(turn, game, config.d.micro_batches)

    def generate() -> None:
        fakes_of_turn(game.d_turn(next(batches)), game, config.d.micro_batches)

    def update_d() -> None:
        game.d.update(game.d_turn(next(batches)).with_fakes(fakes), against=game.g)

    def update_g() -> None:
        game.g.update(game.g_turn(next(batches)), against=game.d)

    def step() -> None:
        scheme.step(game, batches)

    periods = {side: _period(game, side) for side in Side}
    step_s = _seconds(device, step, lcm(*periods.values()))
    update_s = {
        Side.G: _seconds(device, update_g, periods[Side.G]),
        Side.D: _seconds(device, update_d, periods[Side.D]),
    }
    wall_s = time.perf_counter()
    cpu_s = time.process_time()
    step()
    cpu_share = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    return _Costs(_seconds(device, generate), update_s, step_s, _load_s(config, found, device, size), cpu_share)


def _period(game: GAN, side: Side) -> int:
    """Return the updates after which lazy penalties repeat."""
    penalties = game.g_penalties if side is Side.G else game.d_penalties
    return min(_MOST_PERIOD, lcm(*(penalty.interval for penalty in penalties)))


def _seconds(device: torch.device, run: Callable[[], object], period: int = 1) -> float:
    """Return the mean seconds of a call over a period of calls.

    The mean is that of the faster half of some periods: other processes only make calls slower.
    """
    for _ in range(period):
        run()
    times = []
    for _ in range(max(_FEWEST_PERIODS, _REPEATS // period)):
        began = synchronized_time(device)
        for _ in range(period):
            run()
        times.append((synchronized_time(device) - began) / period)
    return statistics.mean(sorted(times)[: len(times) // 2 + 1])


def _load_s(config: RunConfig, found: build.Data, device: torch.device, size: int) -> float:
    """Return the seconds that a step waits for a batch: none with prefetch."""
    if isinstance(found.train, ShapeOnlySource) or config.data.options.prefetch:
        return 0.0
    train = replace(config.train, batch=size)
    stream = batch_stream(replace(config, train=train), found.train, config.seed, device, flip=found.flip)
    try:
        return _seconds(device, lambda: next(stream))
    finally:
        stream.close()


def _batch_sizes(config: RunConfig) -> list[int]:
    """Return the batch of the config and its halves, at most four sizes."""
    least = _FEWEST_ROWS * lcm(config.g.micro_batches, config.d.micro_batches)
    sizes = [config.train.batch]
    while len(sizes) < _MOST_SIZES and sizes[0] // 2 >= least and sizes[0] % 2 == 0:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def _player(
    game: GAN, side: Side, sizes: Sequence[int], costs: Sequence[_Costs], norms: tuple[int, int]
) -> PlayerProfile:
    seat = game.g if side is Side.G else game.d
    assert isinstance(seat, Player)
    trains = side is Side.G or not game.d_pauses
    trained = [weight for weight in seat.net.parameters() if weight.requires_grad and trains]
    state = seat.net.state_dict().values()
    return PlayerProfile(
        sum(weight.numel() for weight in trained),
        sum(weight.numel() * weight.element_size() for weight in trained),
        sum(value.numel() * value.element_size() for value in state),
        Curve(tuple(sizes), tuple(cost.update_s[side] for cost in costs)),
        *norms,
    )


def updates_fingerprint(config: RunConfig) -> str:
    """Return a word for the networks, losses that act, and precision that a profile was measured with."""
    tree = to_tree(config)
    parts = {name: tree[name] for name in _OF_THE_MODEL}
    parts["data"] = parts["data"]["name"]
    started = config.with_started_terms.adversarial
    parts["acting"] = [started.weight != 0, started.start_kimg == 0, started.d_start_kimg == 0]
    parts["precision"] = [config.g.precision, config.d.precision]
    parts["updates"] = [config.d.updates_per_step, config.g.micro_batches, config.d.micro_batches]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
