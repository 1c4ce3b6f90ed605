"""Order of an endless stream over a data set: a seeded permutation per epoch.

It is computed position by position; no list of rows is stored. A row number is written as a pair (left, right) on a
grid of about sqrt(n) x sqrt(n) places, and each half in turn is moved by a keyed hash of the other: a generalised
Feistel network, which is a bijection of the grid for any hash. The few pairs outside the n rows are permuted again
until they are inside ("cycle walking"), which preserves the bijection. Source: J. Black and P. Rogaway, "Ciphers with
arbitrary finite domains", CT-RSA 2002, sections 4 and 5. The smallest grid is at most sqrt(n) + 1 larger than n; the
next even power of two could be four times as large, and most of the work would be walking.
"""

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
            keys = _round_keys(np.array([rng.key(self.seed, "order", int(epoch))], np.uint64))
            rows[in_epoch] = _permuted(places[in_epoch], np.uint64(self.num_rows), keys)
        return rows


class ClassOrder:
    """Seeded order in which each class comes once in as many rows as there are classes.

    The rows of a class come in permutations, again and again. labels_N: of all rows, int64.
    """

    def __init__(self, labels_N: Indices, seed: int) -> None:
        self._key = np.uint64(rng.key(seed, "classes"))
        self._rows = np.argsort(labels_N, kind="stable")
        _, self._starts, self._sizes = np.unique(labels_N[self._rows], return_index=True, return_counts=True)

    def at(self, positions: Indices) -> Indices:
        """Return the row numbers at these positions, as `Order.at`."""
        turns, places = np.divmod(positions, len(self._sizes))
        classes = self._classes(turns, places)
        epochs, visits = np.divmod(turns, self._sizes[classes])  # a class is visited once in each turn
        keys = _round_keys(_mix(classes * _GOLDEN_GAMMA + self._key) + epochs.astype(np.uint64))
        return self._rows[self._starts[classes] + _permuted(visits, self._sizes[classes].astype(np.uint64), keys)]

    def _classes(self, turns: Indices, places: Indices) -> _Words:
        """Return the classes at these places of turns, each of which is a permutation of the classes."""
        num = len(self._sizes)
        numbers, of_position = np.unique(turns, return_inverse=True)
        words = (numbers[:, None] * num + np.arange(num)).astype(np.uint64)
        return _mix(words * _GOLDEN_GAMMA + self._key).argsort(1)[of_position, places].astype(np.uint64)


def _round_keys(keys_B: _Words) -> _Words:
    """Return the keys of the rounds, (rounds, B)."""
    return _mix(np.arange(1, _ROUNDS + 1, dtype=np.uint64)[:, None] * _GOLDEN_GAMMA + keys_B)


def _permuted(places: Indices, sizes: _Words | np.uint64, keys: _Words) -> Indices:
    """Apply a permutation of 0 … size - 1 to each place. sizes, keys: of all places, or of each."""
    height = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    width = (sizes + height - np.uint64(1)) // height
    words = _feistel(places.astype(np.uint64), keys, height, width)
    # a place outside is mapped again until it is inside, which keeps this a permutation
    outside = np.flatnonzero(words >= sizes)
    keys, height, width, sizes = (
        np.broadcast_to(values, (*values.shape[:-1], len(words))) for values in (keys, height, width, sizes)
    )
    while outside.size:
        words[outside] = _feistel(words[outside], keys[:, outside], height[outside], width[outside])
        outside = outside[words[outside] >= sizes[outside]]
    return words.astype(np.int64)


def _feistel(words: _Words, keys: _Words, height: _Words | np.uint64, width: _Words | np.uint64) -> _Words:
    """Apply a permutation of 0 … height * width - 1."""
    modulus = height
    other = width
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
