"""Types for option fields. Plain `Annotated` types: nothing here imports torch or pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Range:
    """Bounds of a number; `above` is exclusive, `least` and `most` inclusive."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        bounds = ((">= ", self.least), ("> ", self.above), ("<= ", self.most))
        return " and ".join(f"{sign}{_short(bound)}" for sign, bound in bounds if bound is not None)


def _short(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


@dataclass(frozen=True)
class Category:
    """The folder of files that a name is chosen from: `Annotated[Choice, Category("losses")]`.

    Also valid: the names in `also`, and outside code (a dotted path or a .py file).
    """

    name: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A file of a category and its options. Written `{name: r1, weight: 2}`, or `r1` for its default options."""

    name: str
    options: Any


@dataclass(frozen=True)
class IsPath:
    """Marks text that is a path: a leading `~` stands for the home folder."""


FilePath = Annotated[str, IsPath()]
Count = Annotated[int, Range(least=1)]
Natural = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(least=0, most=1)]

# torch.optim, known without importing it; LBFGS (needs a closure) and SparseAdam (sparse gradients) cannot play.
TORCH_OPTIMISERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD"),
    *("Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)
