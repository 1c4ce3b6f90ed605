"""Latents for sampling a generator: any number, truncated, or on a closed path."""

from collections.abc import Iterator
from numbers import Real
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.types import Rows
from paragan.game.prior import Prior

BLOCK = 64  # rows per draw: row i is the same for any number of rows


class Draw(NamedTuple):
    """Latents, and labels of a generator with classes."""

    z_BZ: Tensor
    y_B: Tensor | None


def draw(prior: Prior, n: int) -> Draw:
    """Return n latents and, with classes, n labels. A larger n starts with the same rows."""
    blocks = [draw_block(prior, first // BLOCK, min(BLOCK, n - first)) for first in range(0, n, BLOCK)]
    z_BZ = torch.cat([z for z, _ in blocks])
    return Draw(z_BZ, torch.cat([y for _, y in blocks if y is not None]) if prior.num_classes else None)


def draw_block(prior: Prior, number: int, count: int = BLOCK) -> tuple[Tensor, Tensor | None]:
    """Return the first `count` latents and labels of a block of 64, by its number."""
    return prior.draw("sample", Rows(step=number, first=0, count=count, total=BLOCK))


def truncated(z_BZ: Tensor, threshold: float | None) -> Tensor:
    """Return latents with components of at most `threshold`, in (0, 1], in magnitude.

    threshold: None: the latents are unchanged. The distribution is that of the truncation trick (Brock et al. 2019,
    section 3.1: components of larger magnitude are drawn again). Instead of drawing again, every component moves to
    the same quantile of the truncated normal, so an image and its truncated version belong together.
    """
    if threshold is None:
        return z_BZ
    if not (isinstance(threshold, Real) and 0 < threshold <= 1):
        raise ConfigError(
            f"truncation must be above 0 and at most 1, not {threshold!r}; leave it out for no truncation"
        )
    below = torch.special.ndtr(torch.tensor(-threshold, dtype=torch.float64))
    quantile = below + torch.special.ndtr(z_BZ.cpu().double()) * (1 - 2 * below)
    result: Tensor = torch.special.ndtri(quantile).clamp(-threshold, threshold)
    return result.to(z_BZ)


def slerp(a_BZ: Tensor, b_BZ: Tensor, t: float) -> Tensor:
    """Return the point at t, in [0, 1], on the great circle from a to b (Shoemake 1985), by row.

    A straight line would pass through lengths that a normal latent never has.
    """
    cosine_B = F.cosine_similarity(a_BZ.double(), b_BZ.double(), dim=1).clamp(-1, 1)
    angle_B1 = cosine_B.arccos().unsqueeze(1).to(a_BZ.dtype)
    arc = (((1 - t) * angle_B1).sin() * a_BZ + (t * angle_B1).sin() * b_BZ) / angle_B1.sin()
    # Of parallel vectors, no arc is defined.
    return torch.where(angle_B1.sin() < 1e-4, torch.lerp(a_BZ, b_BZ, t), arc)


def walk(points_KBZ: Tensor, frames: int) -> Iterator[Tensor]:
    """Yield `frames` tensors z_BZ, evenly spaced on the closed path through the K points."""
    count = len(points_KBZ)
    for frame in range(frames):
        leg, part = divmod(frame * count, frames)
        yield slerp(points_KBZ[leg], points_KBZ[(leg + 1) % count], part / frames)
