"""Evaluator of generators that map images to images, by comparison with held-out targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from torch import Tensor

from paragan.core.metric import Metric, Needs, SamplePairs
from paragan.core.option_types import Choice
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.evaluation.chosen_metrics import choose_metrics
from paragan.evaluation.fixed_samples import fetch_pairs
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.interval import half_sample_interval
from paragan.evaluation.score import Score
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import MODE_DESCRIPTIONS, Mode, generate_images, sampling_network

BLOCK = 10  # samples that are compared at once, and are in or out of a half together

# (first row, conditions) -> x_BCHW in [-1, 1]
Translate = Callable[[int, Tensor], Tensor]


@dataclass
class PairEvaluator:
    """Evaluator of image-to-image generators by the distance to `num_images` held-out targets.

    chosen: metrics that a config names; None: all that compare pairs.
    """

    held_out: Source
    num_images: int
    mode: Mode = "eval"
    chosen: Sequence[Choice] | None = None
    resamples: int = 0

    def __post_init__(self) -> None:
        self.num_pairs = min(self.num_images, len(self.held_out))
        metrics = choose_metrics(self.chosen, frozenset({Needs.PAIRS, Needs.IMAGES}))
        self.empty = [metric.kind.from_reference(None, metric.options) for metric in metrics]

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator."""
        generator = sampling_network(player)
        z_BZ, _ = prior.draw("score", Rows(0, 0, self.num_pairs, self.num_pairs))

        def translate(first: int, condition: Tensor) -> Tensor:
            z = z_BZ[first : first + len(condition)]
            given = condition.to(prior.device)
            return generate_images(generator, z, None, len(z), given, self.mode, seed=prior.seed, first=first)

        return self.score(translate)

    def score(self, translate: Translate) -> Score:
        """Compare the translated conditions with their targets.

        Raises `DivergedError` if they are not finite.
        """
        return paired_score(self.empty, self._blocks(translate), self.resamples, self.protocol)

    def _blocks(self, translate: Translate) -> Iterator[SamplePairs]:
        for first in range(0, self.num_pairs, BLOCK):
            target, condition = fetch_pairs(self.held_out, first, min(BLOCK, self.num_pairs - first))
            yield SamplePairs(require_finite(translate(first, condition)), target)

    @property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        return paired_protocol(self.empty, "the target of each pair", self.num_pairs, self.mode)


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
