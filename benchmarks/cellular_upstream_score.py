"""The mixture of a neighbourhood's generators in the upstream-style cellular baseline: drawn image by image, scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.cellular_upstream_images import Images

_AT_ONCE = 100  # images to the extractor: not stated, the fastest of a few


@dataclass(frozen=True)
class Scorer:
    """extractor: (B, 1, H, W) in [-1, 1] to (features, logits). The distance is of logits, between `count` images each.

    Nothing is kept between calls: the first `count` real images are read and judged every time.
    """

    images: Images
    extractor: Callable[[Tensor], tuple[Tensor, Tensor]]
    count: int

    @torch.no_grad()
    def __call__(self, fakes_BP: Tensor) -> tuple[float, float]:
        """The Frechet distance and the total variation distance between the classes' shares; lower is better."""
        reals_BK = self._judged(torch.stack([self.images[index] for index in range(self.count)]))
        fakes_BK = self._judged(fakes_BP.view(-1, *self.images.shape))
        total_variation = (_shares(reals_BK) - _shares(fakes_BK)).abs().sum() / 2
        return frechet(reals_BK.double(), fakes_BK.double()), float(total_variation)

    def _judged(self, x_BCHW: Tensor) -> Tensor:
        return torch.cat([self.extractor(part_BCHW)[1] for part_BCHW in x_BCHW.split(_AT_ONCE)])


def frechet(a_BK: Tensor, b_BK: Tensor) -> float:
    """Between Gaussians fitted to the rows."""
    a_KK, b_KK = a_BK.T.cov(), b_BK.T.cov()
    overlap = torch.linalg.eigvals(a_KK @ b_KK).real.clamp(min=0).sqrt().sum()
    return float((a_BK.mean(0) - b_BK.mean(0)).square().sum() + a_KK.trace() + b_KK.trace() - 2 * overlap)


def _shares(logits_BK: Tensor) -> Tensor:
    return torch.bincount(logits_BK.argmax(1), minlength=logits_BK.shape[1]) / len(logits_BK)


@torch.no_grad()
def sampled(
    nets: Sequence[nn.Module], weights: NDArray[np.float64], count: int, latent: int, draw: np.random.Generator
) -> Tensor:
    """(count, P): each image by a generator drawn for it, one call each."""
    chosen = draw.choice(len(nets), count, p=weights)
    return torch.cat([nets[index](torch.randn(1, latent)) for index in chosen])


def mutated(weights: NDArray[np.float64], sigma: float, draw: np.random.Generator) -> NDArray[np.float64]:
    """Each with noise of `sigma`, none below 0, their sum 1 again."""
    moved = np.clip(weights + draw.normal(0, sigma, len(weights)), 0, None)
    return moved / moved.sum()
