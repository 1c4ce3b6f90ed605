"""Distances between rows of features, in blocks that bound the memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from paragan.core.errors import ConfigError

_ROWS_AT_ONCE = 512


def distances(a_NF: Tensor, b_MF: Tensor) -> Iterator[Tensor]:
    """Yield blocks (n, M) of the Euclidean distances between rows of two sets, in order of `a_NF`."""
    for rows in a_NF.split(_ROWS_AT_ONCE):
        yield torch.cdist(rows, b_MF, compute_mode="donot_use_mm_for_euclid_dist")


def nearest(a_NF: Tensor, b_MF: Tensor) -> Tensor:
    """Return the distance of each row of `a_NF` to its nearest row of `b_MF`, (N,)."""
    return torch.cat([block.amin(1) for block in distances(a_NF, b_MF)])


def radii(x_NF: Tensor, k: int) -> Tensor:
    """Return the distance of each row to its k-th nearest other row, (N,).

    Raises `ConfigError` for no more than k rows.
    """
    require_more_than(k, x_NF)
    # Each row is nearest to itself, at distance 0: the k-th other is the k + 1-th of all.
    return torch.cat([block.kthvalue(k + 1, dim=1).values for block in distances(x_NF, x_NF)])


def require_more_than(k: int, x_NF: Tensor) -> None:
    """Raise `ConfigError` for no more than k rows."""
    if len(x_NF) <= k:
        neighbours = f"the {k} nearest" if k else "the nearest"
        raise ConfigError(
            f"{neighbours} images need more than {k} images, not {len(x_NF)}; raise evaluation.num_images"
        )
