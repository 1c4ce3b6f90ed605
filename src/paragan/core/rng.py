"""Random numbers as a function of position.

A draw is made for the whole global batch from (seed, stream, step) and then cut to the local rows, so the numbers do
not depend on the number of ranks or micro-batches, and a resumed run needs no stored generator state. Draws are made on
the CPU: one run has the same latents on any device. `row_keys` and what draws `_by_key` are for layers inside of a
network, whose sizes only a forward knows: each number is a hash of (seed, row, place), computed on any device.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from math import pi, prod

import numpy as np
import torch
from torch import Tensor

from paragan.core.types import Rows

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # of SplitMix64, as int64


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


def seed_globally(seed: int) -> None:
    """Seed the generators of torch, numpy and `random` that code without a generator of its own draws from."""
    seed_torch(seed)  # an accelerator's, too; `seed_host` seeds the host's a second time, in a microsecond
    seed_host(seed)


def seed_torch(seed: int) -> None:
    """Seed torch, as `torch.manual_seed`, which takes up to 3 ms for accelerators that this torch does not have."""
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.current_accelerator() is not None:
        torch.manual_seed(seed)


def seed_host(seed: int) -> None:
    """Seed the global generators of the host alone, in 15 us, for each sample; with an accelerator it takes 300 us."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))


@contextmanager
def preserved_globally() -> Iterator[None]:
    """Restore the global generators of the host after what is inside."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed the global generators of the host inside, and restore them after it."""
    with preserved_globally():
        seed_host(seed)
        yield


def global_states() -> dict[str, bytes]:
    """Return the states of the global generators on the host, by module."""
    _, keys, position, *_ = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": np.asarray(keys).tobytes() + str(position).encode(),
        "random": repr(random.getstate()).encode(),
    }


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


def row_keys(seed: int, rows: Rows, device: torch.device) -> Tensor:
    """Return a key for each row, int64 (rows.count,), for `uniform_by_key` and `normal_by_key`."""
    numbers = rows.first + rows.stride * torch.arange(rows.count, device=device)
    return _scrambled(numbers * _GOLDEN + seed)


def uniform_by_key(keys_B: Tensor, stream: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return multiples of 2^-24 in [0, 1), (B, *shape), by (key, stream, place) alone."""
    return _fraction(_bits(keys_B, stream, shape) >> 40, dtype)


def normal_by_key(keys_B: Tensor, stream: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return standard normal numbers (Box & Muller 1958), as `uniform_by_key`."""
    bits = _bits(keys_B, stream, shape)
    length = (1 - _fraction(bits >> 40, dtype)).log().mul(-2).sqrt()
    return length * _fraction(bits, dtype).mul(2 * pi).cos()


def _bits(keys_B: Tensor, stream: int, shape: tuple[int, ...]) -> Tensor:
    """Return 64 random bits for each place, (B, *shape)."""
    places = torch.arange(prod(shape), device=keys_B.device)
    keys_B = _scrambled(keys_B + stream)
    return _scrambled((keys_B[:, None] + places) * _GOLDEN).reshape(len(keys_B), *shape)


def _scrambled(x: Tensor) -> Tensor:
    """Return a hash of each int64, in place: the last step of SplitMix64 (Steele et al. 2014, figure 14)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= _shifted(x, shift)
        x *= factor - (1 << 64)  # int64 wraps around
    x ^= _shifted(x, 31)
    return x


def _shifted(x: Tensor, num: int) -> Tensor:
    """Shift right with zeros; torch's shift of int64 repeats the sign."""
    return (x >> num).bitwise_and_((1 << (64 - num)) - 1)


def _fraction(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lowest 24 bits over 2^24, exact in float32."""
    return (bits & 0xFFFFFF).to(dtype) * 2.0**-24
