"""Types of option fields, as plain `Annotated` types, without importing torch or pydantic."""

import math
import os
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval as Interval

_MAX_SIDE = 8192
_NOT_FINITE = re.compile(r"[-+]?(\.?nan|\.?inf|infinity|[0-9.]+e\+?[0-9]{3,})", re.IGNORECASE)


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


@dataclass(frozen=True)
class IsImageSize:
    """Mark of an image size: the side of a square, or text HEIGHTxWIDTH, in pixels."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of sizes; a text of equal sides becomes a number."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda size: size_of(*height_and_width(size)), handler(source)
        )


def height_and_width(size: int | str) -> tuple[int, int]:
    """Return the sides of an image size. Raises `ValueError` for other text, and sides above 8192 pixels."""
    match = re.fullmatch(r"([0-9]{1,4})(?:x([0-9]{1,4}))?", str(size))
    height, width = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not (0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE):
        raise ValueError(f"invalid image size {size}; pass a number of pixels, or HEIGHTxWIDTH as in 96x160")
    return height, width


def size_of(height: int, width: int) -> int | str:
    """Return the image size of these sides: one number for a square."""
    return height if height == width else f"{height}x{width}"


def nearest_sizes(sides: tuple[int, ...], multiple: int) -> str:
    """Return the sizes below and above with sides that are multiples of a number: "28 or 32"."""
    below = size_of(*(max(multiple, side - side % multiple) for side in sides))
    above = size_of(*(side + -side % multiple for side in sides))
    return f"{above}" if below == above else f"{below} or {above}"


def not_finite_item(value: object, key: str, reads_text: bool = False) -> tuple[str, object] | None:
    """Return the dotted key and the value of the first number in maps and lists that is NaN or infinite.

    reads_text: also of text that is such a number, as settings files have it.
    """
    if isinstance(value, float) or (reads_text and isinstance(value, str) and _NOT_FINITE.fullmatch(value.strip())):
        return (key, value) if isinstance(value, str) or not math.isfinite(value) else None
    entries = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, (list, tuple)) else ())
    items = (not_finite_item(item, f"{key}.{name}", reads_text) for name, item in entries)
    return next(filter(None, items), None)


FilePath = Annotated[str, IsPath()]
ProgramPath = Annotated[str, IsPath(runs_code=True)]  # of `torch.export`
Count = Annotated[int, Interval(ge=1)]
Natural = Annotated[int, Interval(ge=0)]
Positive = Annotated[float, Interval(gt=0)]
NotNegative = Annotated[float, Interval(ge=0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
Combine = Literal["sum", "mean"]  # of several discriminators
MelScale = Literal["slaney", "htk"]
ImageSize = Annotated[int | str, IsImageSize()]

# Of torch.optim; without LBFGS (needs a closure), SparseAdam (sparse gradients) and Muon (takes matrices only).
TORCH_OPTIMISERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD"),
    *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)


@dataclass(frozen=True)
class LabelOptions:
    """Options of every dataset, added to those of its file; fingerprints of data ignore them."""

    label_distribution: Literal["data", "uniform"] = field(default="data", repr=False)
    """Labels of generated samples: by the training images of each class, or `uniform`."""
    balance: Literal["none", "classes"] = field(default="none", repr=False)
    """`classes`: batches hold equally many real samples of each class, however many the data has."""


@dataclass(frozen=True)
class DatasetOptions(LabelOptions):
    """Options of a dataset whose file has no `labels` of its own."""

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


@dataclass(frozen=True, kw_only=True)
class SpectrumOptions:
    """Log-mel spectrograms up to half of the sample rate. null: as the data has it, else as `layers.log_mel.LogMel`."""

    sample_rate: Count | None = None
    """Samples of audio per second; null: the data's, else 8,000."""
    n_fft: Count | None = None
    """Samples of a frame; null: the data's, else 256."""
    hop: Count | None = None
    """Samples from frame to frame; null: the data's, else 64."""
    win: Count | None = None
    """Samples of the window in a frame; null: the data's, else n_fft."""
    n_mels: Count | None = None
    """Mel bands; null: the data's, else 40."""
    mel_scale: MelScale | None = None
    """Formula of the mel scale; null: the data's, else slaney."""
