"""Schedules of pipelines as they run: when each rank computes in a forward and backward.

The ranks are processes of this host, one per rank of a player.
python -m paragan.runs.measured_schedule RANK SIZE STORE
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paragan import build
from paragan.build.players import player
from paragan.config import RunConfig, dump, parse_recipe
from paragan.config.sections import ANY
from paragan.core.answering_processes import AnsweringProcesses, reserve_output, source_environment
from paragan.core.dist import World
from paragan.core.errors import RankError
from paragan.core.types import Rows, Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import RankEnv
from paragan.game.player import Player
from paragan.parallel._alternating_passes import run_alternating
from paragan.parallel._backward import backward
from paragan.parallel._network_parts import end_round, pipelined
from paragan.parallel._pipelined_blocks import PipelinedBlocks
from paragan.runs.plan_pipelines import noise_inputs, pipeline_options
from paragan.runs.shape_only_data import shape_only_data
from paragan.scaling.pipeline_plan import PipelinePlan
from paragan.scaling.pipeline_plot import write_schedule_plot
from paragan.scaling.pipeline_schedule import Busy

_TIMEOUT_S = 240.0
_RANK_TIMEOUT_S = 60.0
_WARM_UP = 2  # the first call sends shapes
_SHORTEST_S = 2e-4  # of computing between two waits


def write_timeline(
    config: RunConfig, found: build.Data, plans: Mapping[str, PipelinePlan], path: Path, say: Callable[[str], None]
) -> None:
    """Draw the predicted schedules, and those of a run of these plans on this host, into a file."""
    say("running the pipelines")
    fixed = config
    for side, plan in plans.items():
        options = getattr(config, side)
        with_cuts = replace(options.strategy.options, cuts=plan.cuts)
        chosen = replace(options.strategy, options=with_cuts)
        fixed = replace(fixed, **{side: replace(getattr(fixed, side), strategy=chosen)})
    write_schedule_plot(plans, measure_schedules(fixed, found), path)


def measure_schedules(config: RunConfig, found: build.Data) -> dict[str, list[Busy]]:
    """Return when each rank of the first pipeline computes, for each pipelined player.

    Runs `config.devices` processes with noise. Raises `RankError` if one fails.
    """
    about = {
        "config": dump(config),
        "shape": found.train.shape,
        "classes": found.num_classes,
        "has_pairs": found.has_pairs,
    }
    size = config.devices or 1
    processes = AnsweringProcesses()
    with tempfile.TemporaryDirectory(prefix="paragan-schedule-") as folder, processes:
        for rank in range(size):
            words = [str(rank), str(size), str(Path(folder) / "store")]
            command = [sys.executable, "-P", "-m", "paragan.runs.measured_schedule", *words]
            log = Path(folder) / f"rank-{rank}.log"
            processes.start(command, source_environment(), log, pipes=True)
        replies = processes.request(about, _TIMEOUT_S, _RANK_TIMEOUT_S)
    failed = next((reply["error"] for reply in replies if "error" in reply), None)
    if failed is not None:
        raise RankError(f"--timeline: a rank of the pipeline failed: {failed}")
    sides = [name for name in replies[0] if replies[0][name]]
    return {side: _busy_times([reply[side] for reply in replies]) for side in sides}


def _busy_times(by_rank: Sequence[dict[str, Any]]) -> list[Busy]:
    """Return the times between waits. by_rank: of all ranks; those of the first pipeline count."""
    first = [found for found in by_rank if found["pipeline"] == 0]
    began = min(found["start"] for found in first)
    busy = []
    for found in first:
        starts = [(found["start"], False), *((end, is_backward) for _, end, is_backward in found["waits"])]
        stops = [*(began for began, _, _ in found["waits"]), found["stop"]]
        for (start, is_backward), stop in zip(starts, stops, strict=True):
            if stop - start >= _SHORTEST_S:
                after = is_backward or start >= found["turned"]
                busy.append(Busy(found["stage"], after, start - began, stop - began))
    return busy


def main(rank: int, size: int, store: str) -> None:
    """Answer one request as a rank."""
    reply = reserve_output()
    about: dict[str, Any] = json.loads(sys.stdin.readline())
    torch.set_num_threads(1)
    config = parse_recipe(about["config"], "the planned config", ANY)
    found = shape_only_data(tuple(about["shape"]), about["classes"], about["has_pairs"])
    world = join(RankEnv(rank, size, rank, size, store_path=store), torch.device("cpu"), _RANK_TIMEOUT_S)
    try:
        reply({side.value: _run(config, side, found, world) for side in Side})
    finally:
        destroy_groups(world)


def _run(config: RunConfig, side: Side, found: build.Data, world: World) -> dict[str, Any] | None:
    """Return the waits of this rank in a forward and backward of one network."""
    options = config.g if side is Side.G else config.d
    if pipeline_options(options) is None:
        return None
    make = build.maker(config, side, found, world.device)
    seat = player(side, make, options, world=world)
    placed = pipelined(seat.net)
    rows = Rows(0, *world.share(config.train.batch), config.train.batch)
    inputs = noise_inputs(make, seat.net, rows.count, world.device)
    times: dict[str, Any] = {}
    for _ in range(_WARM_UP + 1):
        world.barrier()
        placed.messages.waits = []
        times["start"] = time.monotonic()
        times["turned"] = _forward_backward(seat, inputs, rows)
        times["stop"] = time.monotonic()
    stage = placed.ranks.group.rank
    return {**times, "waits": placed.messages.waits, "stage": stage, "pipeline": world.rank - stage}


def _forward_backward(seat: Player, inputs: Sequence[Tensor | None], rows: Rows) -> float:
    """Run both passes; return when the backward began, after the end where they alternate."""
    placed = pipelined(seat.net)
    blocks = seat.net.blocks
    if isinstance(blocks, PipelinedBlocks) and blocks.alternates:
        windows = [part.within(rows) for part in rows.parts(blocks.micro_batches)]
        parts = [[None if one is None else one[window] for one in inputs] for window in windows]
        runs = [partial(_micro_batch, seat, part) for part in parts]
        run_alternating(runs, end_round([seat.training_network]))
        return time.monotonic()
    output = _output(seat, inputs)
    turned = time.monotonic()
    output.sum().backward()
    if placed.split is not None:
        placed.split.finish()
    return turned


def _micro_batch(seat: Player, inputs: Sequence[Tensor | None]) -> None:
    backward([_output(seat, inputs).sum()], [None], 1)


def _output(seat: Player, inputs: Sequence[Tensor | None]) -> Tensor:
    output = seat.training_network(*inputs)
    return output if seat.side is Side.G else output.logits_B


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
