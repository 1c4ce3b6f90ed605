"""Evaluator of generators that map images to images, by comparison with held-out targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from torch import Tensor

from paragan.core.metric import ImagePairs, Metric, Needs
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

# (first row, conditions) -> x_BCHW in [-1, 1]
Translate = Callable[[int, Tensor], Tensor]

_PAIRS_AT_ONCE = 10


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
        metrics = choose_metrics(self.chosen, frozenset({Needs.PAIRS}))
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

        Raises `ConfigError` if they are not finite.
        """
        began = time.monotonic()
        blocks = []
        for first in range(0, self.num_pairs, _PAIRS_AT_ONCE):
            target, condition = fetch_pairs(self.held_out, first, min(_PAIRS_AT_ONCE, self.num_pairs - first))
            both = ImagePairs(require_finite(translate(first, condition)), target)
            blocks.append([metric.update(both) for metric in self.empty])
        by_block = {column[0].name: column for column in zip(*blocks, strict=True)}
        values = {name: reduce(Metric.merge, column).compute() for name, column in by_block.items()}
        directions = {metric.name: metric.direction for metric in self.empty}
        intervals = {name: self._interval(values[name], column) for name, column in by_block.items()}
        known = {name: ends for name, ends in intervals.items() if ends is not None}
        seconds = time.monotonic() - began
        return Score(values, self.num_pairs, self.protocol, {}, directions, known, seconds)

    def _interval(self, value: float, blocks: Sequence[Metric]) -> tuple[float, float] | None:
        def compute(rows: Tensor) -> float:
            half: Metric = reduce(Metric.merge, [blocks[row] for row in rows.tolist()])
            return half.compute()

        return half_sample_interval(value, compute, len(blocks), self.resamples)

    @property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        return {
            **{metric.name: metric.protocol() for metric in self.empty if metric.protocol()},
            "compared": {"with": "the target of each pair", "split": "held_out", "num_images": self.num_pairs},
            "mode": self.mode,
            "sampling": MODE_DESCRIPTIONS[self.mode],
        }
