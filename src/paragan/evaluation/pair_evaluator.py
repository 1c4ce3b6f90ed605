"""Evaluators of generators whose samples have a target: images from images, and named tensors."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from torch import Tensor

from paragan.core.errors import ParaganError
from paragan.core.metric import Metric, Needs, SamplePairs
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.evaluation.chosen_metrics import choose_metrics, number_of
from paragan.evaluation.fixed_samples import fetch_pairs
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.interval import half_sample_interval
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.score import FailureLog, Score
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import MODE_DESCRIPTIONS, generate_images, sampling_network

BLOCK = 10  # samples that are compared at once, and are in or out of a half together

# (first row, conditions) -> x_BCHW in [-1, 1]
Translate = Callable[[int, Tensor], Tensor]


@dataclass(kw_only=True)
class TargetEvaluator(ABC):
    """Base class of evaluators that compare what G makes of held-out samples with a target.

    Every rank scores all samples, and gets the same values.
    """

    held_out: Source
    options: EvaluationOptions
    log: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self._failures = FailureLog(self.log)
        self.num_samples = min(self.options.num_images, len(self.held_out))
        self.empty: list[Metric] = []
        for metric in choose_metrics(self.options.metrics, self.available):
            try:
                self.empty.append(metric.kind.from_reference(None, metric.options))
            except ParaganError:  # of its settings, before anything is written
                raise
            except Exception as error:  # of any kind: a metric may be a user's
                self._failures.add(metric.kind.name, error)

    @property
    @abstractmethod
    def available(self) -> frozenset[Needs]:
        """What metrics can read of the samples."""

    @property
    @abstractmethod
    def target(self) -> str:
        """What samples are compared with, in words."""

    @abstractmethod
    def generated_blocks(self, player: Player, prior: Prior) -> Iterator[SamplePairs]:
        """Generate and yield the samples, next to their targets."""

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator. Raises `DivergedError` if samples are not finite."""
        return self.compare(self.generated_blocks(player, prior))

    @property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        return {
            **{metric.name: metric.protocol() for metric in self.empty if metric.protocol()},
            "compared": {"with": self.target, "split": "held_out", "num_images": self.num_samples},
            "mode": self.options.sampling,
            "sampling": MODE_DESCRIPTIONS[self.options.sampling],
        }

    def compare(self, blocks: Iterable[SamplePairs]) -> Score:
        """Compare blocks of samples with their targets by all metrics."""
        began = time.monotonic()
        count = 0
        by_block: dict[str, list[Metric]] = {metric.name: [] for metric in self.empty}
        for block in blocks:
            count += len(block)
            for metric in [metric for metric in self.empty if metric.name in by_block]:
                try:
                    by_block[metric.name].append(metric.update(block))
                except Exception as error:  # of any kind: a metric may be a user's
                    self._failures.add(metric.name, error)
                    del by_block[metric.name]
        values: dict[str, float] = {}
        for name, metrics in by_block.items():
            try:
                values[name] = number_of(_merged(metrics).compute())
            except Exception as error:
                self._failures.add(name, error)
        resamples = self.options.resamples
        intervals = {name: _interval(value, by_block[name], resamples) for name, value in values.items()}
        return Score(
            metrics=values,
            num_images=count,
            protocol=self.protocol,
            real={},
            directions={metric.name: metric.direction for metric in self.empty},
            intervals={name: ends for name, ends in intervals.items() if ends is not None},
            seconds=time.monotonic() - began,
        )


class PairEvaluator(TargetEvaluator):
    """Evaluator of image-to-image generators by the distance to held-out targets."""

    available = frozenset({Needs.PAIRS, Needs.IMAGES})
    target = "the target of each pair"

    def generated_blocks(self, player: Player, prior: Prior) -> Iterator[SamplePairs]:
        """Translate the conditions of pairs."""
        generator = sampling_network(player)
        mode = self.options.sampling
        z_BZ, _ = prior.draw("score", Rows(step=0, first=0, count=self.num_samples, total=self.num_samples))

        def translate(first: int, condition: Tensor) -> Tensor:
            z = z_BZ[first : first + len(condition)]
            condition = condition.to(prior.device)
            return generate_images(
                generator, z, y_B=None, batch=len(z), condition=condition, mode=mode, seed=prior.seed, first=first
            )

        return self.translated(translate)

    def translated(self, translate: Translate) -> Iterator[SamplePairs]:
        """Yield translated conditions next to their targets; `DivergedError` if they are not finite."""
        for first in range(0, self.num_samples, BLOCK):
            target, condition = fetch_pairs(self.held_out, first, min(BLOCK, self.num_samples - first))
            translated = translate(first, condition)
            require_finite(translated)
            yield SamplePairs(translated, target)


def _merged(blocks: Sequence[Metric]) -> Metric:
    return reduce(lambda whole, block: whole.merge(block), blocks)


def _interval(value: float, blocks: Sequence[Metric], resamples: int) -> tuple[float, float] | None:
    """Return the interval of a metric; None, too, if it fails on a half of the samples."""

    def compute(rows: Tensor) -> float:
        return number_of(_merged([blocks[row] for row in rows.tolist()]).compute())

    return half_sample_interval(value, compute, len(blocks), resamples, blocks[0].is_share)
