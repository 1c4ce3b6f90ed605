"""Mixtures of a neighbourhood's generators, with weights evolved by one (1+1)-ES per cell.

The weights make one step per generation. The images of each generator are computed once; a mixture takes some rows of
each. Two mixtures are thus compared on the same images, and scoring a mixture runs no network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.interrupt import StopRequested
from paragan.core.metric import SampleFeatures
from paragan.core.phases import beat
from paragan.core.types import Rows
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.score import FailureLog
from paragan.extensions.grid.genome import EvalNetwork, Genome
from paragan.game.prior import Prior
from paragan.game.sampling import generate_images
from paragan.metrics import fd

# distance of images from the real ones, by their features; lower is better
Distance = Callable[[SampleFeatures], float]
_PATIENCE = 3  # rounds without an improvement


class Ensemble(NamedTuple):
    """Greedy ensemble of generators.

    counts: times that each generator is a member, by its number. distance: from real images, by the metric of mixtures.
    """

    counts: dict[int, int]
    distance: float


@dataclass(frozen=True, kw_only=True)
class MixtureScorer:
    """Scorer of mixtures by the Frechet distance of their images to the training images.

    network: into which generators are loaded. num_images: of each generator. failures: of the extractor.
    """

    network: EvalNetwork
    judge: Callable[[], Evaluator]
    prior: Prior
    num_images: int
    failures: FailureLog

    def features(self, genome: Genome, generation: int) -> SampleFeatures | None:
        """Return features of a generator's images; all generators use the same latents.

        None if the extractor fails, which is reported once: the run continues.
        """
        beat()
        z, y = self.prior.draw("mixture", Rows(step=generation, first=0, count=self.num_images, total=self.num_images))
        images = generate_images(self.network.load(genome, average=True), z, y)
        try:
            return self.judge().extractor.compute(images)
        except StopRequested:
            raise
        except Exception as error:
            self.failures.add("the mixture", error)
            return None

    def distance(self, features: SampleFeatures) -> float:
        """Return the distance of images with these features; infinite for non-finite ones."""
        beat()
        if not features.features_BF.isfinite().all():
            return float("inf")
        try:
            return self._empty_metric.update(features).compute()
        except ConfigError as error:  # such as equal features of all real images
            self.failures.add("the mixture", error)
            return float("inf")

    @cached_property
    def _empty_metric(self) -> fd.Metric:
        return fd.Metric.from_reference(self.judge().train_reference)


def normalize_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """Clip weights at 0 and scale their sum to 1; equal weights if all are 0."""
    clipped = [max(0.0, weight) for weight in weights]
    total = sum(clipped)
    return tuple(w / total for w in clipped) if total > 0 else (1 / len(clipped),) * len(clipped)


def image_counts(weights: Sequence[float], num: int) -> list[int]:
    """Return each member's number of images among `num`, by weight (largest-remainder rounding)."""
    shares = [weight * num for weight in normalize_weights(weights)]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - shares[i], i))  # the largest first
    for i in by_remainder[: num - sum(counts)]:
        counts[i] += 1
    return counts


def mixture_features(pools: Sequence[SampleFeatures], weights: Sequence[float]) -> SampleFeatures:
    """Return the features of a mixture: rows of member 0, the next rows of member 1, and so on.

    pools: features of the same number of images of each member.
    """
    first = 0
    parts = []
    for pool, count in zip(pools, image_counts(weights, len(pools[0])), strict=True):
        parts.append(pool.rows(first, first + count))
        first += count
    return SampleFeatures.concatenate(parts)


def evolve_weights(
    pools: Sequence[SampleFeatures],
    weights: Sequence[float],
    sigma: float,
    distance: Distance,
    seed: int,
    cell: int,
    generation: int,
) -> tuple[tuple[float, ...], float]:
    """Return the weights after one (1+1)-ES step, and their distance (Beyer & Schwefel 2002).

    Each weight is moved by N(0, sigma); the result is accepted if its distance is lower.
    """
    parent_distance = distance(mixture_features(pools, weights))
    if len(pools) == 1 or not sigma:
        return tuple(weights), parent_distance
    generator = rng.generator(seed, "mixture", cell, generation)
    steps = torch.randn(len(weights), generator=generator, dtype=torch.float64).tolist()
    child = normalize_weights([weight + sigma * step for weight, step in zip(weights, steps, strict=True)])
    child_distance = distance(mixture_features(pools, child))
    if child_distance < parent_distance:
        return child, child_distance
    return tuple(weights), parent_distance


def greedy_ensemble(pools: Sequence[SampleFeatures], distance: Distance, limit: int) -> Ensemble:
    """Grow an ensemble greedily, with repetition.

    Each round adds the member that lowers the distance most. Ends with `limit` members, or after
    3 rounds without an improvement (Caruana et al. 2004; for generators Toutouh et al. 2020); empty if none is finite.
    """
    members: list[int] = []
    best = Ensemble({}, float("inf"))
    # the difference is the number of rounds since the best
    while len(members) < limit and len(members) - sum(best.counts.values()) < _PATIENCE:
        tried = [(distance(_equal_mixture(pools, [*members, i])), i) for i in range(len(pools))]
        new_distance, new_member = min(tried)
        members.append(new_member)
        if new_distance < best.distance:
            best = Ensemble({i: members.count(i) for i in sorted(set(members))}, new_distance)
    return best


def _equal_mixture(pools: Sequence[SampleFeatures], members: Sequence[int]) -> SampleFeatures:
    """Return the features of a mixture in which each member, some of which are repeated, has the same weight."""
    distinct = sorted(set(members))
    return mixture_features([pools[i] for i in distinct], [members.count(i) for i in distinct])
