"""A neighbourhood's generators as one: with weights, which a (1+1)-ES improves a little in every generation.

Every generator makes its images once; a mixture is so many of each one's (its rows of them), so that two mixtures are
compared on the same images and scoring one costs no network at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from paragan.core import rng
from paragan.metrics._sample_features import SampleFeatures

Distance = Callable[[SampleFeatures], float]  # of so many judged images from the real ones; lower is better
_BLOCK = 100  # images that are made at once


class FeatureRows(Protocol):
    """A generator's images, judged."""

    def __len__(self) -> int: ...

    def rows(self, first: int, end: int) -> SampleFeatures: ...


class LazyFeatures:
    """`Images` that are made when some mixture has them: of any one generator's few mixtures have all.

    judged: images first … end - 1 of `num`.
    """

    def __init__(self, judged: Callable[[int, int], SampleFeatures], num: int) -> None:
        self._judged, self._num = judged, num
        self._blocks: dict[int, SampleFeatures] = {}

    def __len__(self) -> int:
        return self._num

    def rows(self, first: int, end: int) -> SampleFeatures:
        start = min(first, self._num - 1) // _BLOCK
        blocks = range(start, max(start + 1, -(-end // _BLOCK)))
        there = SampleFeatures.concatenate([self._block(number) for number in blocks])
        return there.rows(first - start * _BLOCK, end - start * _BLOCK)

    def _block(self, number: int) -> SampleFeatures:
        if number not in self._blocks:
            self._blocks[number] = self._judged(number * _BLOCK, min((number + 1) * _BLOCK, self._num))
        return self._blocks[number]


def normalize_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """None below 0, and 1 in all; equal ones where nothing is left."""
    clipped = [max(0.0, weight) for weight in weights]
    total = sum(clipped)
    return tuple(weight / total for weight in clipped) if total > 0 else (1 / len(clipped),) * len(clipped)


def image_counts(weights: Sequence[float], num: int) -> list[int]:
    """Of `num` images how many are whose: the share of each, rounded so that the largest remainders get one more."""
    exact = [weight * num for weight in normalize_weights(weights)]
    whole = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))
    for i in by_rest[: num - sum(whole)]:
        whole[i] += 1
    return whole


def mixture_features(pools: Sequence[FeatureRows], weights: Sequence[float]) -> SampleFeatures:
    """What the mixture makes of equally many images of each: member i fills the rows that follow member i - 1's."""
    first, parts = 0, []
    for pool, count in zip(pools, image_counts(weights, len(pools[0])), strict=True):
        parts.append(pool.rows(first, first + count))
        first += count
    return SampleFeatures.concatenate(parts)


def evolve_weights(
    pools: Sequence[FeatureRows],
    weights: Sequence[float],
    sigma: float,
    distance: Distance,
    seed: int,
    cell: int,
    time: int,
) -> tuple[tuple[float, ...], float]:
    """Weights after one step, and their distance: each moved by N(0, sigma), kept if nearer (Beyer & Schwefel 2002)."""
    now = distance(mixture_features(pools, weights))
    if len(pools) == 1 or not sigma:
        return tuple(weights), now
    steps = torch.randn(len(weights), generator=rng.generator(seed, "mixture", cell, time), dtype=torch.float64)
    child = normalize_weights([weight + sigma * step for weight, step in zip(weights, steps.tolist(), strict=True)])
    then = distance(mixture_features(pools, child))
    return (child, then) if then < now else (tuple(weights), now)


def greedy_ensemble(
    pools: Sequence[FeatureRows], distance: Distance, most: int, patience: int = 3
) -> tuple[dict[int, int], float]:
    """An ensemble grown by whoever brings it nearest, the same one again perhaps: how often each is in it.

    Ends with `most` members, or after `patience` rounds that brought it no nearer (Caruana et al. 2004; for generators
    Toutouh et al. 2020).
    """
    chosen: list[int] = []
    best: tuple[dict[int, int], float] = ({}, float("inf"))
    for _ in range(most + patience):
        tried = [(distance(_equal_mixture(pools, [*chosen, i])), i) for i in range(len(pools))]
        found, winner = min(tried)
        chosen.append(winner)
        if found < best[1] and len(chosen) <= most:
            best = {i: chosen.count(i) for i in sorted(set(chosen))}, found
        if len(chosen) >= most or len(chosen) - sum(best[0].values()) >= patience:
            break
    return best


def _equal_mixture(pools: Sequence[FeatureRows], members: Sequence[int]) -> SampleFeatures:
    names = sorted(set(members))
    return mixture_features([pools[i] for i in names], [members.count(i) for i in names])
