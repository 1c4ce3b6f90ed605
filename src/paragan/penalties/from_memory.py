"""A term that a Python program passed to the run; the program has to pass it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Record of a term whose code is in the program, not in the run folder."""

    term: str = ""
    """Name of the term."""
    side: str = "g"
    """The player whose loss it joins."""
    settings: str = ""
    """Class of the term with its numbers."""


def Penalty(options: Options) -> NoReturn:
    """Raise `ConfigError`: the term is not in the run folder."""
    problem = f"the term {options.term} was passed from Python and is not in the run folder"
    raise ConfigError(f"{problem}; run that program again")
