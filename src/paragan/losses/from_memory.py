"""A loss that a Python program passed to the run; the program has to pass it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Record of a loss whose code is in the program, not in the run folder."""

    functions: str = ""
    """Functions of the discriminator's and the generator's loss."""


def loss(options: Options) -> NoReturn:
    """Raise `ConfigError`: the loss is not in the run folder."""
    problem = f"the loss {options.functions} was passed from Python and is not in the run folder"
    raise ConfigError(f"{problem}; run that program again")
