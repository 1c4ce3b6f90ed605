"""Random numbers as a function of position.

A draw is made for the whole global batch from (seed, stream, step) and then cut to the local rows,
so the numbers do not depend on the number of ranks or micro-batches, and a resumed run needs no
stored generator state. Draws are made on the CPU: one run has the same latents on any device.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from paragan.core.types import Rows


def key(*words: int | str) -> int:
    """Return 63 bits from any words; equal words give equal keys on every machine and Python."""
    digest = hashlib.blake2b("\x1f".join(map(str, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fraction(*words: int | str) -> float:
    """Return a uniform number in [0, 1) from any words, as `key`."""
    return key(*words) / (1 << 63)


def generator(*words: int | str) -> torch.Generator:
    """Return a new CPU generator for this position."""
    return torch.Generator().manual_seed(key(*words))


def normal(seed: int, stream: str, rows: Rows, shape: tuple[int, ...]) -> Tensor:
    """Return standard normal numbers, float32, (rows.count, *shape)."""
    source = generator(seed, stream, rows.step)
    return torch.randn((rows.total, *shape), generator=source)[rows.window]


def uniform(seed: int, stream: str, rows: Rows, shape: tuple[int, ...]) -> Tensor:
    """Return uniform numbers in [0, 1), float32, (rows.count, *shape)."""
    source = generator(seed, stream, rows.step)
    return torch.rand((rows.total, *shape), generator=source)[rows.window]


def integers(seed: int, stream: str, rows: Rows, high: int) -> Tensor:
    """Return uniform integers in [0, high), int64, (rows.count,)."""
    source = generator(seed, stream, rows.step)
    return torch.randint(high, (rows.total,), generator=source)[rows.window]
