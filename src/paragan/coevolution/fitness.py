"""All against all, once: losses of every generator and discriminator in reach, on equal latents and real samples.

A generator's images, and a verdict of one on another's, are computed once and serve every cell they are needed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from paragan.coevolution.eval_network import EvalNetwork
from paragan.coevolution.genome import Genome
from paragan.core.types import Batch, DiscriminatorOutput, GeneratorOutput, Side
from paragan.game.gan import Loss

_MAX_BYTES = 1 << 29  # of images that are kept; beyond it they are made again


@dataclass
class FitnessEvaluator:
    """One generation's. reals: by cell, the same batch where data is the same. y_B: labels of the latents."""

    stages: Mapping[Side, EvalNetwork]
    loss: Loss
    z_BZ: Tensor
    y_B: Tensor | None
    reals: Callable[[int], Batch]
    _fakes: dict[Genome, Tensor] = field(default_factory=dict)
    _of_fakes: dict[tuple[Genome, Genome], Tensor] = field(default_factory=dict)
    _of_reals: dict[tuple[Genome, int], Tensor] = field(default_factory=dict)
    _losses: dict[tuple[Genome, Genome, int], Mapping[Side, float]] = field(default_factory=dict)

    def fitness(self, side: Side, genome: Genome, opponents: Sequence[Genome], cell: int, by: str = "mean") -> float:
        """Its loss against these, lower is fitter; not finite where it is lost."""
        return _AGGREGATES[by]([self.losses(*self._pair(side, genome, other), cell)[side] for other in opponents])

    @torch.no_grad()
    def losses(self, g: Genome, d: Genome, cell: int) -> Mapping[Side, float]:
        """The losses of both."""
        place = g, d, id(self.reals(cell))
        if place not in self._losses:
            fake, real = self._fake_logits(g, d), self._real_logits(d, cell)
            self._losses[place] = {
                Side.G: float(_mean(self.loss.g(fake, real if self.loss.g_needs_real else None))),
                Side.D: float(_mean(self.loss.d(real, fake))),
            }
        return self._losses[place]

    @torch.no_grad()
    def precompute_logits(self, pairs: Iterable[tuple[Genome, Genome]]) -> None:
        """Verdicts on the images of all these (g, d), with as few changes of networks as there are."""
        wanted = [pair for pair in dict.fromkeys(pairs) if pair not in self._of_fakes]
        if all(self._keeps(g) for g in dict.fromkeys(g for g, _ in wanted)):
            for d, group in _group_by_first((d, g) for g, d in wanted).items():
                for g in group:
                    self._of_fakes[g, d] = self._verdict(d, self._fakes[g], self.y_B)
            return
        for g, group in _group_by_first(wanted).items():
            images = self._images(g)
            for d in group:
                self._of_fakes[g, d] = self._verdict(d, images, self.y_B)

    def _fake_logits(self, g: Genome, d: Genome) -> Tensor:
        self.precompute_logits([(g, d)])
        return self._of_fakes[g, d]

    def _real_logits(self, d: Genome, cell: int) -> Tensor:
        real = self.reals(cell)
        if (d, id(real)) not in self._of_reals:
            assert real.x_BCHW is not None
            self._of_reals[d, id(real)] = self._verdict(d, real.x_BCHW, real.y_B)
        return self._of_reals[d, id(real)]

    def _images(self, g: Genome) -> Tensor:
        if g in self._fakes:
            return self._fakes[g]
        images = GeneratorOutput.of(self.stages[Side.G].show(g)(self.z_BZ, self.y_B)).images
        if (len(self._fakes) + 1) * images.numel() * images.element_size() <= _MAX_BYTES:
            self._fakes[g] = images
        return images

    def _keeps(self, g: Genome) -> bool:
        """Whether its images are kept."""
        self._images(g)
        return g in self._fakes

    def _verdict(self, d: Genome, x_BCHW: Tensor, y_B: Tensor | None) -> Tensor:
        return DiscriminatorOutput.of(self.stages[Side.D].show(d)(x_BCHW, y_B)).logits_B

    @staticmethod
    def _pair(side: Side, genome: Genome, other: Genome) -> tuple[Genome, Genome]:
        return (genome, other) if side is Side.G else (other, genome)


_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda losses: math.fsum(losses) / len(losses),
    "worst": max,
    "best": min,
}
Aggregate = Literal["mean", "worst", "best"]


def _mean(values: Tensor) -> Tensor:
    return values.double().mean()


def _group_by_first(pairs: Iterable[tuple[Genome, Genome]]) -> dict[Genome, list[Genome]]:
    """By the first of each pair, the second ones."""
    found: dict[Genome, list[Genome]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found
