"""Fitness of genomes: losses of every generator against every discriminator of a neighbourhood.

All pairs use the same latents and real samples. Images of a generator and logits of a pair are
computed once and shared by all cells that need them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.phases import beat
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Side
from paragan.extensions.grid.genome import EvalNetwork, Genome

_MAX_BYTES = 1 << 29  # limit of the image cache; other images are generated again


@dataclass(kw_only=True)
class FitnessEvaluator:
    """Evaluator of the genomes of one generation; caches images, logits and losses.

    eval_networks: networks into which genomes are loaded. y_B: labels of the latents. reals: returns the real batch of
    a cell, the same object for cells with the same data, which it holds: its `id` is the key.
    """

    eval_networks: Mapping[Side, EvalNetwork]
    loss: Loss
    z_BZ: Tensor
    y_B: Tensor | None
    reals: Callable[[int], Batch]
    _fakes: dict[Genome, Tensor] = field(default_factory=dict)
    _logits_of_fakes: dict[tuple[Genome, Genome], Tensor] = field(default_factory=dict)
    _logits_of_reals: dict[tuple[Genome, int], Tensor] = field(default_factory=dict)
    _losses: dict[tuple[Genome, Genome, int], Mapping[Side, float]] = field(default_factory=dict)

    def fitness(
        self, side: Side, genome: Genome, opponents: Sequence[Genome], cell: int, aggregate: str = "mean"
    ) -> float:
        """Aggregate a genome's losses against opponents; lower is fitter, NaN: one is not finite, it has diverged."""
        pairs = [(genome, other) if side is Side.G else (other, genome) for other in opponents]
        losses = [self.losses(*pair, cell)[side] for pair in pairs]
        if not all(map(math.isfinite, losses)):
            return math.nan  # -inf would be the fittest, and with NaN `min` and `max` depend on the order
        return _AGGREGATES[aggregate](losses)

    @torch.no_grad()
    def losses(self, g: Genome, d: Genome, cell: int) -> Mapping[Side, float]:
        """Return the losses of both genomes on the data of a cell."""
        key = g, d, id(self.reals(cell))
        if key not in self._losses:
            self.precompute_logits([(g, d)])
            fake = self._logits_of_fakes[g, d]
            real = self._real_logits(d, cell)
            g_loss_B = self.loss.g(fake, real if self.loss.g_needs_real else None)
            d_loss_B = self.loss.d(real, fake)
            self._losses[key] = {Side.G: float(g_loss_B.double().mean()), Side.D: float(d_loss_B.double().mean())}
        return self._losses[key]

    @torch.no_grad()
    def precompute_logits(self, pairs: Iterable[tuple[Genome, Genome]]) -> None:
        """Compute D's logits on G's images for these (g, d) pairs; each G makes its images once."""
        discriminators: dict[Genome, list[Genome]] = {}
        for g, d in dict.fromkeys(pairs):
            if (g, d) not in self._logits_of_fakes:
                discriminators.setdefault(g, []).append(d)
        for g, group in discriminators.items():
            images = self._images(g)
            for d in group:
                self._logits_of_fakes[g, d] = self._logits(d, images, self.y_B)

    def _real_logits(self, d: Genome, cell: int) -> Tensor:
        real = self.reals(cell)
        if (d, id(real)) not in self._logits_of_reals:
            self._logits_of_reals[d, id(real)] = self._logits(d, real.image, real.label)
        return self._logits_of_reals[d, id(real)]

    def _images(self, g: Genome) -> Tensor:
        if g in self._fakes:
            return self._fakes[g]
        beat()
        images = GeneratorOutput.of(self.eval_networks[Side.G].load(g)(self.z_BZ, self.y_B)).images
        if (len(self._fakes) + 1) * images.numel() * images.element_size() <= _MAX_BYTES:
            self._fakes[g] = images
        return images

    def _logits(self, d: Genome, x_BCHW: Tensor, y_B: Tensor | None) -> Tensor:
        beat()
        output = DiscriminatorOutput.of(self.eval_networks[Side.D].load(d)(x_BCHW, y_B))
        return output.single("a grid").logits_B


_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda losses: math.fsum(losses) / len(losses),
    "worst": max,
    "best": min,
}
