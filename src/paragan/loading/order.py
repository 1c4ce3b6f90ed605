"""The order in which an endless stream visits a data set: a seeded permutation per epoch, computed position by position.

No list is ever held: a permutation is a Feistel network, a bijection of pairs of half-words whatever its round function is (Luby
and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput. 17(2), 1988), on the smallest
even number of bits that holds the data set. What falls outside is sent through again until it falls inside ("cycle walking":
Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 3), which keeps it a bijection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.core import rng

Indices = NDArray[np.int64]
_Words = NDArray[np.uint64]

_ROUNDS = 6  # four suffice in theory; half-words of a few bits, as small data sets have, mix too little in four


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
        half_bits = max(1, -(-(self.num_rows - 1).bit_length() // 2))
        keys = _mixed(np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _ODD + np.uint64(key))
        words = _feistel(places.astype(np.uint64), keys, half_bits)
        outside = np.flatnonzero(words >= self.num_rows)
        while outside.size:
            words[outside] = _feistel(words[outside], keys, half_bits)
            outside = outside[words[outside] >= self.num_rows]
        return words.astype(np.int64)


def _feistel(words: _Words, keys: _Words, half_bits: int) -> _Words:
    """A permutation of the words of 2 x half_bits bits."""
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = words >> shift, words & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & mask)
    return (left << shift) | right


_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _mixed(words: _Words) -> _Words:
    """Each output bit depends on all input bits: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16)."""
    words = (words ^ (words >> _S30)) * _FIRST
    words = (words ^ (words >> _S27)) * _SECOND
    return words ^ (words >> _S31)
