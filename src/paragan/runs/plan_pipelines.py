"""Plans of the pipelines of a config: costs of the blocks, counted or measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paragan import build
from paragan.build.networks import has_outside_networks
from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Side
from paragan.game.options import PlayerOptions
from paragan.hardware.executors import synchronized_time
from paragan.parallel._block_costs import block_costs, estimate_work, measure_seconds
from paragan.parallel._pipeline_cuts import BlockCost
from paragan.parallel._pipelined_blocks import default_micro_batches
from paragan.scaling.forecast_plot import check_plot_file
from paragan.scaling.pipeline_plan import PipelinePlan, PipelineSize, plan_pipeline


def pipeline_options(options: PlayerOptions) -> Any:
    """Return the options of a player's pipeline; None for another strategy."""
    chosen = options.strategy
    return chosen.options if chosen is not None and chosen.name == "pipeline" else None


def refuse_timeline(config: RunConfig, is_measured: bool, path: Path) -> None:
    """Raise `ConfigError` for a timeline that cannot be drawn."""
    check_plot_file(path, "--timeline")
    is_pipelined = any(map(pipeline_options, (config.g, config.d)))
    if not is_measured or (config.devices or 1) < 2 or not is_pipelined:
        problem = "--timeline draws the schedules of pipelines, predicted and as they run"
        raise ConfigError(f"{problem}; pass --measure devices=N g.strategy=pipeline, too")
    if has_outside_networks(config, None):
        problem = "--timeline does not support networks of outside code, whose inputs are not known"
        raise ConfigError(f"{problem}; leave it out")


def plan_pipelines(
    config: RunConfig, found: build.Data, device: torch.device, is_measured: bool
) -> dict[str, PipelinePlan]:
    """Return the plan of each player under strategy pipeline, by side.

    is_measured: by the times of its blocks on this device, else by their estimated work.
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


def pipeline_size(config: RunConfig, side: Side, options: Any, make: NetworkFactory) -> PipelineSize:
    """Return the size of a pipeline. Raises `ConfigError` if nothing says how many ranks."""
    devices = config.devices or 1
    stages = options.stages or devices
    if stages == 1:
        raise ConfigError(
            f"plan: a pipeline of one rank; pass devices=N, or {side.value}.strategy.stages=N, the ranks of a pipeline"
        )
    copies = max(1, devices // stages)
    micro_batches = options.micro_batches or default_micro_batches(_on_meta(make))
    rows = -(-config.train.batch // (copies * micro_batches))
    alternates = options.schedule == "1f1b"
    return PipelineSize(stages, options.chunks, micro_batches, rows, options.split_backward, alternates)


def costs_of_blocks(make: NetworkFactory, device: torch.device | None, rows: int) -> list[BlockCost]:
    """Return the costs of the blocks of a network whose inputs are known.

    device: to measure seconds on micro-batches of `rows` samples; None: work is estimated.
    """
    net = _on_meta(make)
    assert make.inputs is not None
    if device is None:
        return block_costs(net, make.inputs(net), estimate_work)
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
