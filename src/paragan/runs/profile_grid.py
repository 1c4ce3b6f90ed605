"""Measurement of a grid's profile: generations by a worker's cells, in one process."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from paragan import build
from paragan.build.data import sample_name
from paragan.build.grid_factory import GridFactory
from paragan.coevolution.options import GridOptions
from paragan.coevolution.workers.cell_assignment import assign_cells
from paragan.coevolution.workers.genome_exchange import pack_cells
from paragan.config import RunConfig, to_tree
from paragan.core.errors import ConfigError
from paragan.hardware import device as devices
from paragan.runs.busy_host import busy_neighbours, workers_of_host
from paragan.runs.profile_run import updates_fingerprint
from paragan.runs.timed_generations import GenerationCost, TimedGenerations, WorkerPlace
from paragan.scaling.grid_forecast import scaled_grid
from paragan.scaling.grid_profile import GridProfile
from paragan.scaling.profile import Curve

_MOST_CELLS = 16  # that are measured; more take as long each
_WIDE = 4  # workers with a recipe's grid each, whose neighbours are all on others
_NO_COST = ("age", "heartbeat_s")  # options that do not change what a worker computes
Say = Callable[[str], None]


def measure_grid_profile(config: RunConfig, recipe: str, found: build.Data, say: Say) -> GridProfile:
    """Time generations by the number of a worker's cells, and count what an exchange would send.

    Needs up to some minutes, and a machine that does nothing else. On a CPU, generations are also
    timed while all cores are busy (`busy_host.py`).
    """
    one = replace(config, workers=None, transport="gloo")
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        factory = GridFactory.of(one, Path(folder), say, must_keep=False, data=found)
        counts = _cell_counts(factory.options.num_cells)
        cells = [factory.cell(number) for number in range(counts[-1])]
        timed = TimedGenerations(factory, cells, say)
        places = [_place(factory.options, count) for count in counts]
        try:
            alone = [timed.measure(place) for place in places]
            wide = [timed.measure(place) for place in _wide_places(factory.options)]
            busy_workers = _busy_workers(one, factory)
            ends = places[:: max(1, len(places) - 1)]
            busy = _measure_busy(timed, ends, one, busy_workers - 1) or alone
            # untrained individuals have no optimiser state yet
            trained = replace(cells[0].state(), centre=cells[0].snapshot(0))
            sent = pack_cells([0], {0: trained})
        finally:
            for cell in cells:
                cell.batches.close()
    every = [*alone, *wide]
    about = (recipe, one.model.name, grid_fingerprint(config), devices.machine(factory.device))
    return GridProfile(
        *about,
        str(factory.device),
        torch.get_num_threads(),
        factory.options.shape,
        train_s=_curve({cost.work.cells: cost.train_s for cost in alone}),
        evaluate_s=_curve({cost.work.passes: cost.evaluate_s for cost in every}),
        score_s=_curve({cost.work.generators: cost.score_s for cost in every}),
        generation_s=_curve({cost.work.cells: cost.generation_s for cost in alone}),
        busy_s=_curve({cost.work.cells: cost.generation_s for cost in busy}),
        busy_workers=busy_workers,
        cpu_share=alone[-1].cpu_share,
        state_bytes=sum(map(len, sent)),
        messages=len(sent),
    )


def grid_fingerprint(config: RunConfig) -> str:
    """Return a word for all that a generation's cost was measured with."""
    tree = to_tree(config)
    grid = {name: value for name, value in tree["grid"].items() if name not in _NO_COST}
    parts = [updates_fingerprint(config), grid, tree["scheme"], config.train.batch]
    parts.append(tree["evaluation"]["features"])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _cell_counts(num_cells: int) -> list[int]:
    """Return 1, 2, 4, … cells up to all of a grid, or to the most that are measured."""
    most = min(num_cells, _MOST_CELLS)
    powers = [1 << power for power in range(most.bit_length())]
    return [*(count for count in powers if 1.5 * count <= most), most]


def _place(options: GridOptions, count: int) -> WorkerPlace:
    """Return the place of a worker with so many cells of the recipe's grid."""
    rest = options.num_cells - count
    owners = assign_cells(*options.rows_columns, [count, rest]) if rest else [0] * count
    return WorkerPlace.of(options, owners)


def _wide_places(options: GridOptions) -> list[WorkerPlace]:
    """Return the place of a worker with the recipe's grid as a part of a larger one, if it can grow.

    It compares and scores the individuals of more neighbours than a grid that is alone.
    """
    if options.num_cells > _MOST_CELLS:
        return []
    with suppress(ConfigError):
        larger = scaled_grid(options, _WIDE, is_weak=True)
        return [WorkerPlace.of(larger, assign_cells(*larger.rows_columns, [1.0] * _WIDE))]
    return []


def _busy_workers(config: RunConfig, factory: GridFactory) -> int:
    is_shared = factory.device.type == "cpu" and sample_name(config, None) is None
    return workers_of_host(torch.get_num_threads()) if is_shared else 1


def _measure_busy(
    timed: TimedGenerations, places: Sequence[WorkerPlace], config: RunConfig, neighbours: int
) -> list[GenerationCost]:
    """Time generations next to so many processes that train one pair; empty without one."""
    if not neighbours:
        return []
    timed.say(f"measuring generations next to {neighbours} other processes")
    pair = replace(config.with_started_terms, grid=None)
    with busy_neighbours(pair, timed.factory.data, neighbours) as others:
        others.run(config.train.batch)
        return [timed.measure(place) for place in places]


def _curve(points: Mapping[int, float]) -> Curve:
    rows = sorted(points)
    return Curve(tuple(rows), tuple(points[row] for row in rows))
