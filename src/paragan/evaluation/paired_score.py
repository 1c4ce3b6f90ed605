"""A score that compares generated samples with their targets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from torch import Tensor

from paragan.core.metric import Metric, SamplePairs
from paragan.evaluation.interval import half_sample_interval
from paragan.evaluation.score import Score
from paragan.game.sampling import MODE_DESCRIPTIONS, Mode

BLOCK = 10  # samples that are compared at once, and are in or out of a half together


def paired_score(
    empty: Sequence[Metric], blocks: Iterable[SamplePairs], resamples: int, protocol: dict[str, Any]
) -> Score:
    """Compare blocks of pairs by metrics without samples."""
    began = time.monotonic()
    count = 0
    updated = []
    for block in blocks:
        count += len(block)
        updated.append([metric.update(block) for metric in empty])
    by_block = {column[0].name: column for column in zip(*updated, strict=True)}
    values = {name: _merged(column).compute() for name, column in by_block.items()}
    directions = {metric.name: metric.direction for metric in empty}
    intervals = {}
    for name, column in by_block.items():
        ends = _interval(values[name], column, resamples)
        if ends is not None:
            intervals[name] = ends
    return Score(values, count, protocol, {}, directions, intervals, time.monotonic() - began)


def paired_protocol(empty: Sequence[Metric], target: str, num_images: int, mode: Mode) -> dict[str, Any]:
    """Return the settings that must be equal where two scores compare. target: in words."""
    return {
        **{metric.name: metric.protocol() for metric in empty if metric.protocol()},
        "compared": {"with": target, "split": "held_out", "num_images": num_images},
        "mode": mode,
        "sampling": MODE_DESCRIPTIONS[mode],
    }


def _merged(blocks: Sequence[Metric]) -> Metric:
    return reduce(lambda whole, block: whole.merge(block), blocks)


def _interval(value: float, blocks: Sequence[Metric], resamples: int) -> tuple[float, float] | None:
    def compute(rows: Tensor) -> float:
        return _merged([blocks[row] for row in rows.tolist()]).compute()

    return half_sample_interval(value, compute, len(blocks), resamples)
