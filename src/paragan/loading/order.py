"""The order in which an endless stream visits a data set: a seeded permutation per epoch, place by place.

No list is ever held. A row number is written as a pair (left, right) on a grid of about sqrt(n) x sqrt(n) places, and
each half in turn is moved around by a keyed hash of the other: a generalised Feistel network, a bijection of the grid
whatever the hash is. The few pairs that land outside the n rows are sent through again until they land inside ("cycle
walking"), which keeps it a bijection. Source: J. Black and P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
2002, sections 4 and 5. The smallest grid is at most sqrt(n) + 1 larger than n; the next even power of two could be four
times as large, and most of the work would be walking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.core import rng

Indices = NDArray[np.int64]
_Words = NDArray[np.uint64]

_ROUNDS = 12  # even; with fewer the orders of five or six rows are visibly not equally likely


@dataclass(frozen=True)
class Order:
    """The visits to `num_rows` rows under `seed`. Position p is place p % num_rows of epoch p // num_rows."""

    num_rows: int
    seed: int

    def at(self, positions: Indices) -> Indices:
        """Row numbers, int64 (B,), for any non-negative positions, int64 (B,). Time and memory O(B)."""
        epochs, places = np.divmod(positions, self.num_rows)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            mine = epochs == epoch
            rows[mine] = self._permuted(places[mine], rng.key(self.seed, "order", int(epoch)))
        return rows

    def _permuted(self, places: Indices, key: int) -> Indices:
        """The image of these places under the epoch's permutation of 0 … num_rows - 1."""
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
    """A permutation of 0 … height * width - 1."""
    own, other = np.uint64(height), np.uint64(width)
    half, hashed = np.divmod(words, other)
    for key in keys:
        half = (half + _mix(hashed ^ key) % own) % own
        half, hashed, own, other = hashed, half, other, own
    return half * other + hashed  # an even number of rounds: both are back in their places


_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _mix(words: _Words) -> _Words:
    """Each output bit depends on all input bits.

    The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16).
    """
    words = (words ^ (words >> _S30)) * _FIRST
    words = (words ^ (words >> _S27)) * _SECOND
    return words ^ (words >> _S31)
