"""Tensors that a Python program passed to the run; the program has to pass them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from paragan.core.errors import ConfigError
from paragan.core.option_types import Natural


@dataclass(frozen=True)
class Options:
    """Record of data whose tensors are in the program, not in the run folder."""

    tensors: dict[str, str] = field(default_factory=dict)
    """Shape and type of each tensor of a sample."""
    samples: Natural = 0
    """Number of samples; 0: unknown, of an iterable."""
    buckets: tuple[Natural, ...] = ()
    """Lengths to which tensors of different lengths are padded."""
    fingerprint: str = ""
    """Fingerprint of the data."""


def source(options: Options, split: str) -> NoReturn:
    """Raise `ConfigError`: the tensors are not in the run folder."""
    raise ConfigError(
        f"data.name is from_memory: the tensors {', '.join(options.tensors)} were passed from Python and are not "
        "in the run folder; run that program again"
    )
