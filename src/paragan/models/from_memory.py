"""Networks that a Python program passed to the run; the program has to pass them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from paragan.core.errors import ConfigError
from paragan.core.option_types import Count


@dataclass(frozen=True)
class Options:
    """Record of networks whose code is in the program, not in the run folder."""

    generator: str
    """Class of the generator that the program passed."""
    discriminator: str
    """Class of the discriminator that the program passed."""
    latent: Count | None = None
    """Length of z, if known."""
    conditional: bool | None = None
    """Whether the networks take labels; null: if the data has labels."""


def Generator(options: Options, *shape_and_classes: Any) -> NoReturn:
    """Raise `ConfigError`: the network is not in the run folder."""
    raise ConfigError(missing_networks(options))


Discriminator = Generator


def missing_networks(options: Options) -> str:
    """Return the error message for a run whose networks were not passed."""
    return (
        f"model.name is from_memory: the networks {options.generator} and {options.discriminator} "
        "were passed from Python and are not in the run folder; run that program again to "
        "resume, or call paragan.load(RUN, generator=MyGenerator()) to sample"
    )
