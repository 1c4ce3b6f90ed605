"""Records of what a Python program passed to a run: the objects are in the program, not in the run folder.

The program has to pass them again: each record says so.
"""

from dataclasses import dataclass, field

from paragan.core.option_types import Count, Natural

FROM_MEMORY = "from_memory"  # the recorded name


@dataclass(frozen=True)
class PassedNetworks:
    """Record of networks."""

    generator: str
    """Class of the generator that the program passed."""
    discriminator: str
    """Class of the discriminator that the program passed."""
    latent: Count | None = None
    """Length of z, if known."""
    conditional: bool | None = None
    """Whether the networks take labels; null: if the data has labels."""

    def missing(self) -> str:
        """Return the error message for a run whose networks were not passed."""
        return (
            f"model.name is from_memory: the networks {self.generator} and {self.discriminator} "
            "were passed from Python and are not in the run folder; run that program again to "
            "resume, or call paragan.load(RUN, generator=MyGenerator()) to sample"
        )


@dataclass(frozen=True)
class PassedTensors:
    """Record of data."""

    tensors: dict[str, str] = field(default_factory=dict)
    """Shape and type of each tensor of a sample."""
    samples: Natural = 0
    """Number of samples; 0: unknown, of an iterable."""
    buckets: tuple[Natural, ...] = ()
    """Lengths to which tensors of different lengths are padded."""
    fingerprint: str = ""
    """Fingerprint of the data."""

    def missing(self) -> str:
        """Return the error message for a run whose tensors were not passed."""
        return (
            f"data.name is from_memory: the tensors {', '.join(self.tensors)} were passed from Python and are not "
            "in the run folder; call paragan.load(RUN, generator=MyGenerator()) to sample, or run that program again: "
            "the run that it returns has sample, score and generator"
        )


@dataclass(frozen=True)
class PassedLoss:
    """Record of a loss."""

    functions: str = ""
    """Functions of the discriminator's and the generator's loss."""

    def missing(self) -> str:
        """Return the error message for a run whose loss was not passed."""
        return f"the loss {self.functions} was passed from Python and is not in the run folder; run that program again"


@dataclass(frozen=True)
class PassedTerm:
    """Record of a term."""

    term: str = ""
    """Name of the term."""
    side: str = "g"
    """The player whose loss it joins."""
    settings: str = ""
    """Class of the term with its numbers."""

    def missing(self) -> str:
        """Return the error message for a run whose term was not passed."""
        return f"the term {self.term} was passed from Python and is not in the run folder; run that program again"


# by category
RECORDS = {"models": PassedNetworks, "datasets": PassedTensors, "losses": PassedLoss, "penalties": PassedTerm}
