"""Types of option fields, as plain `Annotated` types, without importing torch or pydantic."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval as Interval


@dataclass(frozen=True)
class Category:
    """The folder of files that a name is chosen from: `Annotated[Choice, Category("losses")]`.

    Also valid: the names in `also`, and outside code (a dotted path or a .py file).
    """

    name: str
    also: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return a schema in which the context of the validation makes the `Choice`."""
        from pydantic_core import core_schema

        if source is not Choice:
            return handler(source)
        return core_schema.with_info_plain_validator_function(lambda entries, info: info.context(self.name, entries))


@dataclass(frozen=True)
class Choice:
    """A file of a category and its options: `{name: r1, weight: 2}`, or `r1` for the defaults."""

    name: str
    options: Any


@dataclass(frozen=True)
class IsPath:
    """Mark of text that is a path, with `~` for the home folder.

    runs_code: reading the file may run code of it, so that it needs the user's trust.
    """

    runs_code: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema that expands `~`."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(os.path.expanduser, handler(source))


FilePath = Annotated[str, IsPath()]
ProgramPath = Annotated[str, IsPath(runs_code=True)]  # of `torch.export`
Count = Annotated[int, Interval(ge=1)]
Natural = Annotated[int, Interval(ge=0)]
Positive = Annotated[float, Interval(gt=0)]
NotNegative = Annotated[float, Interval(ge=0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
Combine = Literal["sum", "mean"]  # of several discriminators
ImageSize = Literal[8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]

# Of torch.optim; without LBFGS (needs a closure), SparseAdam (sparse gradients) and Muon (takes matrices only).
TORCH_OPTIMISERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD"),
    *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)


@dataclass(frozen=True)
class DatasetOptions:
    """Options of every dataset, added to those of its file; fingerprints of data ignore them."""

    labels: bool = field(default=True, repr=False)
    """Whether the labels of the data are used. false: none, the run is unconditional."""


@dataclass(frozen=True)
class PretrainedOptions:
    """Options of a feature extractor that was trained on images of one size."""

    resize: Literal["bilinear", "bicubic"] | None = None
    """Antialiased filter for images of another size than the network's; null: refused."""


@dataclass(frozen=True)
class FileExtractorOptions(PretrainedOptions):
    """Weights file of a feature extractor, and the size of its images."""

    weights: FilePath | None = None
    """The weights, .npz or .safetensors; null: none."""
    sha256: str | None = None
    """Required sha256 of the weights file; null: any."""
