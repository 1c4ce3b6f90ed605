"""Evaluator of generators that map images to images, by comparison with held-out targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.core.metric import Needs, SamplePairs
from paragan.core.option_types import Choice
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.evaluation.chosen_metrics import choose_metrics
from paragan.evaluation.fixed_samples import fetch_pairs
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.paired_score import BLOCK, paired_protocol, paired_score
from paragan.evaluation.score import Score
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_images, sampling_network

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
