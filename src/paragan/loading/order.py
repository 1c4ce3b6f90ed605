"""Order of an endless stream over a data set: a seeded permutation per epoch.

It is computed position by position; no list of rows is stored. A row number is written as a pair
(left, right) on a grid of about sqrt(n) x sqrt(n) places, and each half in turn is moved by a keyed
hash of the other: a generalised Feistel network, which is a bijection of the grid for any hash. The
few pairs outside the n rows are permuted again until they are inside ("cycle walking"), which
preserves the bijection. Source: J. Black and P. Rogaway, "Ciphers with arbitrary finite domains",
CT-RSA 2002, sections 4 and 5. The smallest grid is at most sqrt(n) + 1 larger than n; the next even
power of two could be four times as large, and most of the work would be walking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.core import rng

Indices = NDArray[np.int64]
_Words = NDArray[np.uint64]

# even; with fewer rounds, the orders of five or six rows are measurably not equally likely
_ROUNDS = 12


@dataclass(frozen=True)
class Order:
    """Seeded order of rows: position p is place p % num_rows of epoch p // num_rows."""

    num_rows: int
    seed: int

    def at(self, positions: Indices) -> Indices:
        """Return the row numbers, int64 (B,), at non-negative positions, int64 (B,), in O(B)."""
        epochs, places = np.divmod(positions, self.num_rows)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            in_epoch = epochs == epoch
            rows[in_epoch] = self._permute(places[in_epoch], rng.key(self.seed, "order", int(epoch)))
        return rows

    def _permute(self, places: Indices, key: int) -> Indices:
        """Apply the permutation of 0 … num_rows - 1 of one epoch to these places."""
        height = math.isqrt(self.num_rows - 1) + 1
        width = -(-self.num_rows // height)
        keys = _mix(np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _GOLDEN_GAMMA + np.uint64(key))
        words = _feistel(places.astype(np.uint64), keys, height, width)
        outside = np.flatnonzero(words >= self.num_rows)
        while outside.size:
            words[outside] = _feistel(words[outside], keys, height, width)
            outside = outside[words[outside] >= self.num_rows]
        return words.astype(np.int64)


def _feistel(words: _Words, keys: _Words, height: int, width: int) -> _Words:
    """Apply a permutation of 0 … height * width - 1."""
    modulus = np.uint64(height)
    other = np.uint64(width)
    half, hashed = np.divmod(words, other)
    for key in keys:
        half = (half + _mix(hashed ^ key) % modulus) % modulus
        half, hashed = hashed, half
        modulus, other = other, modulus
    return half * other + hashed  # the number of rounds is even: both halves are back in place


_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)


def _mix(words: _Words) -> _Words:
    """Mix the bits of each word: the finaliser of SplitMix64 (Steele et al. 2014, figure 16)."""
    words = (words ^ (words >> _S30)) * _FIRST
    words = (words ^ (words >> _S27)) * _SECOND
    return words ^ (words >> _S31)
