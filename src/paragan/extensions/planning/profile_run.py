"""Measurement of a run's profile: real updates on noise at several batch sizes, in one process."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import lcm
from typing import Any

import torch

from paragan import build
from paragan.build.batches import batch_stream
from paragan.config import RunConfig, to_tree
from paragan.core.fakes import detached_fakes
from paragan.core.network_factory import Model
from paragan.core.printable import counted
from paragan.core.roles import colocated_roles
from paragan.core.types import Side
from paragan.distributed.launch.join import LoneRank, lone_rank
from paragan.extensions.planning.profile import Curve, PlayerProfile, RunProfile
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.hardware import device as devices
from paragan.hardware.executors import time_call
from paragan.runs.run_request import Log
from paragan.runs.shape_only_data import ShapeOnlySource, noise_batches

_MIN_CALLS = 12  # of what is timed
_MIN_PERIODS = 3
_MAX_PERIOD = 32
_MAX_SIZES = 4
_MIN_ROWS = 2  # batch norm needs two samples
_FINGERPRINT_KEYS = ("data", "model", "loss", "penalties", "augment", "balancer")


def measure_profile(
    config: RunConfig,
    recipe: str,
    data: build.Data,
    memory: Callable[[int], int] | None,
    rows: Sequence[int] = (),
    log: Log = lambda line: None,
    model: Model | None = None,
) -> RunProfile:
    """Time the updates of one worker at several batch sizes, and count what they would exchange.

    model: networks from memory, instead of the config's. rows: batch sizes to measure; the
    config's, its half, quarter and eighth unless given. memory: bytes at the peak of a step of a
    batch size; None: not known. Needs some seconds, and a machine that does nothing else.
    """
    device = devices.select_device(config.train.threads)
    sizes = tuple(sorted(set(rows)) or _batch_sizes(config))
    measured_config = _on_one_worker(config)
    with torch.random.fork_rng(devices=[]):
        measured = _measure_sizes(measured_config, data, model, device, sizes, log)
    batch = next(noise_batches(measured_config, data, device, batch=1))
    row_bytes = {name: tensor.element_size() * tensor[0].numel() for name, tensor in batch.tensors.items()}
    measured["fake_bytes"] += row_bytes.get("label", 0)  # a fake is sent with its label
    return RunProfile(
        recipe=recipe,
        model=config.model.name,
        fingerprint=updates_fingerprint(config),
        machine=devices.machine(device),
        device=str(device),
        threads=torch.get_num_threads(),
        batch=config.train.batch,
        d_updates=config.d.updates_per_step,
        sample_bytes=sum(row_bytes.values()),
        memory=Curve(sizes, tuple(0.0 if memory is None else float(memory(size)) for size in sizes)),
        **measured,
    )


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """Measurements at one batch size, in seconds, as in `RunProfile`. update_s: of one update of each player."""

    step_s: float
    update_s: dict[Side, float]
    generate_s: float
    load_s: float
    cpu_share: float


def _measure_sizes(
    config: RunConfig, data: build.Data, model: Model | None, device: torch.device, sizes: tuple[int, ...], log: Log
) -> dict[str, Any]:
    """Return the measured fields of a `RunProfile`: of a process that is no rank, then of one rank of several."""

    def worker(game: GAN, size: int) -> _Worker:
        return _Worker(config=config, data=data, game=game, device=device, size=size)

    alone_game = build.gan(config, data, device, model=model)
    alone_step_s = [worker(alone_game, size).step_s() for size in sizes]
    with lone_rank(device) as world:
        game = build.gan(config, data, device, colocated_roles(world), model)
        any_size = worker(game, sizes[0])  # the number of collectives is the same for all
        generate_norms, _ = _count_norms(world, any_size.generate)
        fake_bytes = any_size.fake_bytes // sizes[0]
        norms = {side: _count_norms(world, partial(any_size.update, side)) for side in game.slots}
        costs = [_measure(worker(game, size), log) for size in sizes]
    players = {}
    for side in game.slots:
        update_s = Curve(sizes, tuple(cost.update_s[side] for cost in costs))
        players[side] = _player(game, side, update_s, norms[side])
    return {
        "g": players[Side.G],
        "d": players[Side.D],
        "further": {side.value: player for side, player in players.items() if side.is_extra},
        "generate_norms": generate_norms,
        "fake_bytes": fake_bytes,
        "alone_step_s": Curve(sizes, tuple(alone_step_s)),
        "step_s": Curve(sizes, tuple(cost.step_s for cost in costs)),
        "generate_s": Curve(sizes, tuple(cost.generate_s for cost in costs)),
        "load_s": Curve(sizes, tuple(cost.load_s for cost in costs)),
        "cpu_share": Curve(sizes, tuple(cost.cpu_share for cost in costs)),
    }


def _on_one_worker(config: RunConfig) -> RunConfig:
    """Return the config of one eager process whose players take turns.

    Steps cost the same: none leaves out the update of D by chance, and losses that begin later are active.
    """
    config = replace(config, devices=None, train=replace(config.train, executor="eager")).with_all_losses_active
    for name, player in config.player_options.items():
        config = config.with_player(name, replace(player, strategy=None))
    return build.with_synchronous_scheme(replace(config, d=replace(config.d, update_probability=1.0)))


class _Worker:
    """Parts of the steps of a game, on noise of one batch size."""

    def __init__(self, config: RunConfig, data: build.Data, game: GAN, device: torch.device, size: int) -> None:
        self.config = config
        self.data = data
        self.device = device
        self.size = size
        self._game = game
        self._scheme = build.scheme(config)
        self._batches = noise_batches(config, data, device, size)
        self._fakes: tuple[torch.Tensor, ...] = ()
        self.periods = {side: _period(game, side) for side in game.slots}

    def generate(self) -> None:
        """Generate the fakes of D's turn; none if it is not due."""
        turn = self._game.d_turn(next(self._batches))
        parts = self.config.d.micro_batches
        self._fakes = detached_fakes(turn, self._game.g.network(), parts) if turn.is_due else ()

    @property
    def fake_bytes(self) -> int:
        """Bytes of the fakes that were generated last: images, or whatever else G returns."""
        return sum(fakes.nbytes for fakes in self._fakes)

    def update(self, side: Side) -> None:
        """Run one update; D's on the fakes that were generated last."""
        game = self._game
        turn = game.turn(side, next(self._batches))
        if side is Side.D:
            turn = turn.with_fakes(self._fakes)
        game.slots[side].update(turn, against=game.d if side is Side.G else game.g)

    def step(self) -> None:
        """Run one step of the scheme."""
        self._scheme.step(self._game, self._batches)

    def step_s(self) -> float:
        """Return the mean seconds of a step."""
        return _seconds(self.device, self.step, lcm(*self.periods.values()))


def _count_norms(world: LoneRank, run: Callable[[], None]) -> tuple[int, int]:
    """Return the all-reduces of batch norm in a call, and the bytes of all of them."""
    calls_before = world.calls["norm"]
    bytes_before = world.sent["norm"]
    run()
    return world.calls["norm"] - calls_before, world.sent["norm"] - bytes_before


def _measure(worker: _Worker, log: Log) -> _Costs:
    """Return the seconds of a step and of its parts at one batch size."""
    log(f"measuring updates of {counted(worker.size, 'sample')}")
    worker.generate()  # D's update needs fakes
    step_s = worker.step_s()
    update_s = {
        side: _seconds(worker.device, partial(worker.update, side), period) for side, period in worker.periods.items()
    }
    cpu_share = _cpu_share(worker.step)
    generate_s = _seconds(worker.device, worker.generate)
    load_s = 0.0
    if not isinstance(worker.data.train, ShapeOnlySource) and not worker.config.loading.prefetch:
        load_s = load_seconds(worker.config, worker.data, worker.device, worker.size)
    return _Costs(step_s=step_s, update_s=update_s, generate_s=generate_s, load_s=load_s, cpu_share=cpu_share)


def _cpu_share(run: Callable[[], None]) -> float:
    """Return the share of a call in which this process computed; the rest is an accelerator's."""
    wall_began = time.perf_counter()
    cpu_began = time.process_time()
    run()
    cpu_s = time.process_time() - cpu_began
    return min(1.0, cpu_s / (time.perf_counter() - wall_began))


def _period(game: GAN, side: Side) -> int:
    """Return the updates after which lazy penalties repeat."""
    return min(_MAX_PERIOD, lcm(*(penalty.interval for penalty in game.penalties[side])))


def _seconds(device: torch.device, run: Callable[[], object], period: int = 1) -> float:
    """Return the mean seconds of a call over a period of calls.

    The mean is that of the faster half of some periods: other processes only make calls slower.
    """

    def run_period() -> None:
        for _ in range(period):
            run()

    run_period()
    times = [time_call(device, run_period) / period for _ in range(max(_MIN_PERIODS, _MIN_CALLS // period))]
    return statistics.mean(sorted(times)[: len(times) // 2 + 1])


def load_seconds(config: RunConfig, data: build.Data, device: torch.device, batch: int) -> float:
    """Return the mean seconds of reading a batch of so many samples."""
    config = replace(config, train=replace(config.train, batch=batch))
    stream = batch_stream(config, data.train, config.seed, device, flip=data.flip)
    try:
        return _seconds(device, lambda: next(stream))
    finally:
        stream.close()


def _batch_sizes(config: RunConfig) -> list[int]:
    """Return the batch of the config and its halves, at most four sizes."""
    min_size = _MIN_ROWS * lcm(*(player.micro_batches for player in config.player_options.values()))
    sizes = [config.train.batch]
    while len(sizes) < _MAX_SIZES and sizes[0] // 2 >= min_size and sizes[0] % 2 == 0:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def _player(game: GAN, side: Side, update_s: Curve, norms: tuple[int, int]) -> PlayerProfile:
    """Return the profile of a player. norms: number and bytes of the all-reduces of batch norm in an update."""
    player = game.slots[side]
    assert isinstance(player, Player)
    trains = side is not Side.D or not game.d_pauses
    trained = [weight for weight in player.net.parameters() if weight.requires_grad and trains]
    return PlayerProfile(
        parameters=sum(weight.numel() for weight in trained),
        weight_bytes=sum(weight.nbytes for weight in trained),
        state_bytes=sum(value.nbytes for value in player.net.state_dict().values()),
        update_s=update_s,
        norms=norms[0],
        norm_bytes=norms[1],
        updates=player.updates_per_step if side.is_extra else 1,  # D's are in `d_updates`
        calls=tuple(called.value for called in game.called_by(side) if called.is_extra),
    )


def updates_fingerprint(config: RunConfig) -> str:
    """Return a word for the networks, losses that act, and precision that a profile was measured with."""
    tree = to_tree(config)
    parts = {name: tree[name] for name in _FINGERPRINT_KEYS}
    parts["data"] = parts["data"]["name"]
    started = config.with_all_losses_active.adversarial
    parts["acting"] = [started.weight != 0, started.start_kimg == 0, started.d_start_kimg == 0]
    parts["precision"] = [config.g.precision, config.d.precision]
    parts["updates"] = [config.d.updates_per_step, config.g.micro_batches, config.d.micro_batches]
    if config.players:
        parts["players"] = {
            name: [player.precision, player.updates_per_step, player.micro_batches]
            for name, player in config.players.items()
        }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
