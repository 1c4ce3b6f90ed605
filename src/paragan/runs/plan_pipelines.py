"""Plans of the pipelines of a config: costs of the blocks, counted or measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paragan import build
from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Side
from paragan.game.options import PlayerOptions
from paragan.hardware.executors import synchronized_time
from paragan.parallel._block_costs import block_costs, count_operations, measure_seconds
from paragan.parallel._pipeline_cuts import BlockCost
from paragan.parallel._pipelined_blocks import default_micro_batches
from paragan.scaling.pipeline_plan import PipelinePlan, PipelineSize, plan_pipeline
from paragan.scaling.pipeline_plot import write_schedule_plot


def pipeline_options(options: PlayerOptions) -> Any:
    """Return the options of a player's pipeline; None for another strategy."""
    chosen = options.strategy
    return chosen.options if chosen is not None and chosen.name == "pipeline" else None


def plan_pipelines(
    config: RunConfig, found: build.Data, device: torch.device, is_measured: bool
) -> dict[str, PipelinePlan]:
    """Return the plan of each player under strategy pipeline, by side.

    is_measured: by the times of its blocks on this device, else by their operations.
    """
    plans = {}
    for side in Side:
        options = pipeline_options(config.g if side is Side.G else config.d)
        if options is None:
            continue
        make = build.maker(config, side, found, torch.device("cpu"))
        if make.inputs is None:
            continue
        size = pipeline_size(config, side, options, make)
        costs = costs_of_blocks(make, device if is_measured else None, size.rows)
        plans[side.value] = plan_pipeline(costs, size, options.cuts, is_measured)
    return plans


def write_timeline(
    config: RunConfig, found: build.Data, plans: Mapping[str, PipelinePlan], path: Path, say: Callable[[str], None]
) -> None:
    """Draw the predicted schedules, and those of a run of these plans on this host, into a file."""
    from paragan.runs.measured_schedule import measure_schedules

    say("running the pipelines")
    fixed = config
    for side, plan in plans.items():
        options = getattr(config, side)
        chosen = replace(options.strategy, options=replace(options.strategy.options, cuts=plan.cuts))
        fixed = replace(fixed, **{side: replace(getattr(fixed, side), strategy=chosen)})
    write_schedule_plot(plans, measure_schedules(fixed, found), path)


def pipeline_size(config: RunConfig, side: Side, options: Any, make: NetworkFactory) -> PipelineSize:
    """Return the size of a player's pipeline. Raises `ConfigError` if nothing says how many ranks."""
    devices = config.devices or 1
    stages = options.stages or devices
    if stages == 1:
        raise ConfigError(
            f"plan: a pipeline of one rank; pass devices=N, or {side.value}.strategy.stages=N, the ranks of a pipeline"
        )
    copies = max(1, devices // stages)
    micro_batches = options.micro_batches or default_micro_batches(_on_meta(make))
    return PipelineSize(stages, options.chunks, micro_batches, -(-config.train.batch // (copies * micro_batches)))


def costs_of_blocks(make: NetworkFactory, device: torch.device | None, rows: int) -> list[BlockCost]:
    """Return the costs of the blocks of a network whose inputs are known.

    device: to measure seconds on micro-batches of `rows` samples; None: operations are counted.
    """
    net = _on_meta(make)
    assert make.inputs is not None
    if device is None:
        return block_costs(net, make.inputs(net), count_operations)
    given = noise_inputs(make, net, rows, device)
    return block_costs(net, given, measure_seconds(partial(synchronized_time, device), device))


def noise_inputs(make: NetworkFactory, net: nn.Module, rows: int, device: torch.device) -> list[Tensor | None]:
    """Return arguments of a network for `rows` samples: noise, and the class 0."""
    assert make.inputs is not None
    return [None if one is None else _noise(one, rows, device) for one in make.inputs(net)]


def _on_meta(make: NetworkFactory) -> nn.Module:
    with torch.device("meta"):
        return make.construct()


def _noise(like: Tensor, rows: int, device: torch.device) -> Tensor:
    shape = (rows, *like.shape[1:])
    if not like.is_floating_point():
        return torch.zeros(shape, dtype=like.dtype, device=device)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
