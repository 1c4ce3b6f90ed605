"""Options that several metrics share. This module does not import torch."""

from dataclasses import dataclass

from paragan.core.option_types import Count


@dataclass(frozen=True)
class RangeOptions:
    """Range of the values that are compared."""

    range: tuple[float, float] = (-1.0, 1.0)
    """Lowest and highest value of a sample; images are in [-1, 1]."""

    def __post_init__(self) -> None:
        if self.range[0] >= self.range[1]:
            raise ValueError(f"range must be two increasing numbers, not {list(self.range)}")


@dataclass(frozen=True)
class CodebookOptions:
    """Size of what G quantises by."""

    codes: Count | None = None
    """Codes of a codebook; required."""
    codebooks: Count = 1
    """Number of codebooks. With more than one, tokens are (B, codebooks, ...)."""
