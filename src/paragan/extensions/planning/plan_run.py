"""The plan of a recipe: simulated on tensors without data, and measured on request."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import lcm, prod

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from paragan import build
from paragan.build.data import has_outside_networks, sample_name
from paragan.config import RunConfig, outside_names, read_recipe
from paragan.core.capabilities import PLAN, check_capabilities
from paragan.core.errors import ConfigError, ParaganError
from paragan.core.network_factory import NetworkFactory
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.types import Side
from paragan.extensions.planning.allocations import to_fake
from paragan.extensions.planning.candidates import PlanSource
from paragan.extensions.planning.choose import choose_plan
from paragan.extensions.planning.forecast import ForecastRequest, check_forecast, forecast_run
from paragan.extensions.planning.measured_times import measure_times, profile_operators
from paragan.extensions.planning.plan import (
    DataPlan,
    DevicePlan,
    ForecastPlan,
    MeasuredTimes,
    MemoryPlan,
    ModelPlan,
    OperatorTime,
    ParallelPlan,
    Plan,
)
from paragan.extensions.planning.simulated_step import SimulatedGame, find_largest_batch
from paragan.game.gan import GAN
from paragan.hardware import device as devices
from paragan.runs.run_request import Log, RunRequest
from paragan.runs.shape_only_data import ShapeOnlySource, condition_channels, data_of_shape, open_data_or_advise
from paragan.runs.start import LESS_MEMORY

Show = Callable[[object], None]  # receives a part of a plan, or None in place of times that were not requested
_FLOAT32_BYTES = 4
_STATE = ("weights", "gradients", "optimizer", "ema")  # terms of memory that ranks can divide


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What to plan. shape, classes: those of the recipe's data if None.

    memory_gb: for the largest batch; None: it is not computed. is_measured: time some steps, too.
    is_profiled: and the operators of these. forecast: of several workers; None: none.
    """

    config: RunConfig
    recipe: str
    shape: tuple[int, int, int] | None = None
    classes: int | None = None
    memory_gb: float | None = None
    is_measured: bool = False
    forecast: ForecastRequest | None = None
    is_profiled: bool = False

    @property
    def memory_bytes(self) -> int | None:
        """Memory of a worker."""
        return None if self.memory_gb is None else round(self.memory_gb * 1e9)


def plan(recipe: str, overrides: Sequence[str] = (), measure: bool = False, memory_gb: float | None = None) -> Plan:
    """Return the plan of a recipe with `key.path=value` words written over it.

    measure: time some steps on this machine, too. memory_gb: memory for which the largest batch is
    computed, in units of 1e9 bytes. Raises `ConfigError` for a grid, and for what `train` refuses.
    """
    config = read_recipe(recipe, overrides)
    return plan_run(PlanRequest(config=config, recipe=recipe, memory_gb=memory_gb, is_measured=measure))


def plan_run(request: PlanRequest, log: Log = lambda line: None, show: Show = lambda part: None) -> Plan:
    """Return the plan of a request.

    log: called with a line before each long part. show: called with each part of the plan once it is known; with
    the memory once more if it has a largest batch, which takes longer.
    """
    check_capabilities(PLAN, request.config.needs)
    if request.forecast is not None:
        check_forecast(request.config, request.forecast)
    config = _simulated_config(request.config)
    data = _open_data(request)
    plan_data = _plan_data(config, data)
    show(plan_data)
    device = devices.select_device(config.train.threads)
    simulated = simulated_game(config, data, device)
    has_outside_code = has_outside_networks(config, model=None)
    with reraise_as_config_error("plan: a simulated step") if has_outside_code else contextlib.nullcontext():
        log("counting parameters and operations")
        model = ModelPlan(config.model.name, simulated.players(config.train.batch))
        show(model)
        memory, device_plan = _simulate_memory(request, simulated, model, log, show)
    measured, operators = _measure(request, config, data, device, log, show)
    forecast, chosen = _forecast(request, data, simulated, log, show)
    notes = _notes(request.config)
    for note in notes:
        show(note)
    return Plan(
        recipe=request.recipe,
        model=model,
        memory=memory,
        data=plan_data,
        devices=device_plan,
        measured=measured,
        operators=operators,
        parallel=chosen,
        forecast=forecast,
        notes=notes,
    )


def _measure(
    request: PlanRequest, config: RunConfig, data: build.Data, device: torch.device, log: Log, show: Show
) -> tuple[MeasuredTimes | None, Mapping[str, tuple[OperatorTime, ...]]]:
    """Return the times of some steps, and of torch's operators in the turns, as far as requested."""
    if not request.is_measured:
        show(None)
        return None, {}
    log("measuring some steps, about 20 s")
    measured = measure_times(config, data, device)  # `build.gan` names what fails in outside networks
    show(measured)
    if not request.is_profiled:
        return measured, {}
    log("profiling operators")
    operators = profile_operators(config, data, device, measured.batch)
    show(operators)
    return measured, operators


def _forecast(
    request: PlanRequest, data: build.Data, simulated: SimulatedGame, log: Log, show: Show
) -> tuple[ForecastPlan | None, ParallelPlan | None]:
    """Return the forecasts, and the settings for the largest number of workers, if requested."""
    if (goal := request.forecast) is None:
        return None, None
    forecast = forecast_run(request.config, request.recipe, goal, data, simulated.peak_bytes, log)
    show(forecast)
    if not goal.is_chosen:
        return forecast, None
    workers = max(goal.workers)
    batch = request.config.train.batch * (workers if goal.scaling == "weak" else 1)
    source = PlanSource(request.config, data, forecast.profile)
    chosen = choose_plan(source, replace(forecast.cluster, workers=workers), batch, request.memory_bytes)
    show(chosen)
    return forecast, chosen


def _notes(config: RunConfig) -> tuple[str, ...]:
    notes = []
    if config.train.executor != "eager":
        notes.append(f"train.executor={config.train.executor}: planned as eager")
    if (config.devices or 1) > 1 and any(player.strategy is not None for player in config.player_options.values()):
        notes.append("strategies of players: planned as ddp, with whole networks on each device")
    if build.scheme(config).is_concurrent:
        notes.append(f"scheme.name={config.scheme.name}: size and memory are those of synchronous, in one process")
    return tuple(notes)


def _simulated_config(config: RunConfig) -> RunConfig:
    """Return the config of one eager process whose players take turns, without padded channels."""
    for name, player in config.player_options.items():
        config = config.with_player(name, replace(player, channel_multiple=1))
    train = replace(config.train, executor="eager", layout="plain")
    return build.with_synchronous_scheme(replace(config, devices=None, train=train))


def _open_data(request: PlanRequest) -> build.Data:
    """Return the data of a request, or only its shape."""
    config, shape = request.config, request.shape
    if shape is None:
        data = open_data_or_advise(config)
        if request.classes is None:
            return data
        shape, condition = data.train.shape, data.train.condition_channels
    elif request.classes is None and getattr(config.model.options, "conditional", False):
        raise ConfigError("--shape: model.conditional=true needs labels; pass the number of classes, too: --classes N")
    else:
        condition = condition_channels(config, shape)
    advice = "leave --shape and --classes out, and plan with the data"
    return data_of_shape(config, shape, request.classes or 0, condition, advice)


@dataclass(frozen=True)
class _FakeNetworks(NetworkFactory):
    """Factory of a network on tensors without data: its weights are not filled."""

    def __call__(self) -> nn.Module:
        return to_fake(self.construct(), self.device)


def simulated_game(config: RunConfig, data: build.Data, device: torch.device) -> SimulatedGame:
    """Return the game of a config, to simulate on tensors without data."""
    # constructors of outside code may read values, which the meta device does not have
    place = contextlib.nullcontext() if outside_names(config) else torch.device("meta")
    sides = map(Side, config.player_options)
    factories = {side: build.network_factory(config, side, data.train, device) for side in sides}

    def construct(side: Side) -> nn.Module:
        with _disable_current_modes(), place:  # not recorded: only what `to_fake` makes is memory of the step
            return factories[side].construct()

    fakes = {side: _FakeNetworks(construct=partial(construct, side), fill=None, device=device) for side in factories}

    def make() -> GAN:
        return build.gan(config.with_all_losses_active, data, device, factories=fakes)

    return SimulatedGame(make=make, scheme=build.scheme(config), tensors=data.train.tensors, device=device)


def _simulate_memory(
    request: PlanRequest, simulated: SimulatedGame, model: ModelPlan, log: Log, show: Show
) -> tuple[MemoryPlan, DevicePlan | None]:
    """Return the memory of a step, with the largest batch if requested, and that of each of several devices."""
    config = request.config
    log("simulating the memory of a step")
    began = time.monotonic()
    memory = simulated.memory(config.train.batch)
    step_s = time.monotonic() - began
    show(memory)

    def peak_bytes(batch: int) -> int:
        if batch == config.train.batch:
            return memory.peak_bytes
        log(f"simulating batch {batch:,}, about {step_s:.0f} s")
        return simulated.peak_bytes(batch)

    num_devices = 1 if build.scheme(config).is_concurrent else config.devices or 1
    gradients = _FLOAT32_BYTES * sum(player.parameters for player in model.players.values())
    bucket_bytes = gradients if num_devices > 1 else 0
    largest = None
    if request.memory_bytes is not None:
        micro_batches = lcm(*(player.micro_batches for player in config.player_options.values()))
        # what a step of any batch holds from its start to its end; gradients are freed in between
        state = sum(memory.terms[term] for term in _STATE if term != "gradients")
        limit = request.memory_bytes - bucket_bytes
        largest = find_largest_batch(peak_bytes, limit, config.train.batch, micro_batches, state)
        show(replace(memory, limit_bytes=request.memory_bytes, largest_batch=largest))
    devices = None
    if num_devices > 1:
        rows = -(-config.train.batch // num_devices)
        peak = peak_bytes(rows) + bucket_bytes
        devices = DevicePlan(num_devices, rows, peak, None if largest is None else num_devices * largest)
        show(devices)
    return replace(memory, limit_bytes=request.memory_bytes, largest_batch=largest), devices


def _plan_data(config: RunConfig, data: build.Data) -> DataPlan:
    source = data.train
    sample_bytes = sum(prod(spec.shape) * spec.dtype.itemsize for spec in source.tensors.values())
    return DataPlan(
        name=config.data.name,
        shape=source.tensors[sample_name(config, model=None) or "image"].shape,
        num_classes=data.num_classes,
        num_images=None if isinstance(source, ShapeOnlySource) else len(source),
        batch=config.train.batch,
        batch_bytes=sample_bytes * config.train.batch,
        kimg=config.train.kimg,
        steps=len(config.max_steps),  # a range
    )


def advise_on_memory(request: RunRequest) -> str:
    """Return what a step needs by its plan, and what divides it between ranks."""
    if request.model is not None or request.config.grid is not None:
        return LESS_MEMORY
    try:
        memory = plan_run(PlanRequest(config=request.config, recipe=request.name)).memory
    except (ParaganError, RuntimeError, MemoryError):
        return LESS_MEMORY  # without the numbers
    state = sum(memory.terms.get(term, 0) for term in _STATE)
    return (
        f"a step needs {memory.peak_bytes / 1e9:.2f} GB in addition to the libraries, by its plan, "
        f"{state / 1e9:.2f} GB of them for weights, gradients, optimizer and average: "
        "pass devices=2 g.strategy=zero3 d.strategy=zero3, or pipeline for both, "
        f"which divide these between ranks; or {LESS_MEMORY}"
    )
