"""Base class of metrics, and what they compare: features of images, or pairs of samples."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from paragan.core.tree import map_tensors


class Needs(Enum):
    """What a metric reads of the generated samples and of their reference."""

    FEATURES = "features"
    LOGITS = "logits"
    CLASS_LOGITS = "logits over the classes of the data"
    LABELS = "labels"
    IMAGES = "images"
    PAIRS = "pairs"
    AUDIO = "audio"
    TOKENS = "tokens"


class Direction(IntEnum):
    """Which values of a metric are better."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


@dataclass(frozen=True, kw_only=True)
class SampleFeatures:
    """An extractor's outputs for real or generated images; metrics use float64 copies on the CPU.

    logits_BK: over the classes; None if the extractor does not classify. requested_labels_B: int64 in [0, K): the
    label of a real image, or that which a generator received; None without classes. row_B: int64, the number of each
    image within the score; by default 0 … B - 1. image_BCHW: uint8, for metrics that need images.
    """

    features_BF: Tensor
    logits_BK: Tensor | None = None
    requested_labels_B: Tensor | None = None
    row_B: Tensor = field(default=None)  # type: ignore[assignment]  # set in __post_init__
    image_BCHW: Tensor | None = None

    def __post_init__(self) -> None:
        if self.row_B is None:
            object.__setattr__(self, "row_B", torch.arange(len(self.features_BF)))

    def rows(self, first: int, end: int) -> Self:
        """Return images first … end - 1."""
        return self.select(slice(first, end))

    def select(self, rows: slice | Tensor) -> Self:
        """Return these images; they keep their numbers."""
        chosen: Self = map_tensors(lambda tensor: tensor[rows], self)
        return chosen

    @classmethod
    def concatenate(cls, pieces: list[Self]) -> Self:
        """Concatenate at least one set, in order; the images are numbered anew."""
        return cls(
            features_BF=torch.cat([piece.features_BF for piece in pieces]),
            logits_BK=_concatenate(piece.logits_BK for piece in pieces),
            requested_labels_B=_concatenate(piece.requested_labels_B for piece in pieces),
            image_BCHW=_concatenate(piece.image_BCHW for piece in pieces),
        )

    def __len__(self) -> int:
        return len(self.features_BF)


@dataclass(frozen=True)
class SplitFeatures:
    """Features of real images of both splits: the reference `both`."""

    train: SampleFeatures
    held_out: SampleFeatures


@dataclass(frozen=True)
class ClassifierTest:
    """Test of classifiers that are trained on generated images: the reference `classifier`.

    accuracy_after: trains one on images, uint8 (N, C, H, W), and their labels (N,), and returns its
    accuracy on held-out images. shape: (C, H, W) of images.
    """

    accuracy_after: Callable[[Tensor, Tensor], float]
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class SamplePairs:
    """Generated and target samples; rows of equal number belong together.

    made, target: images (B, C, H, W) in [-1, 1], or tensors (B, *shape) of a model for other
    samples. extra: what such a generator returned besides (`GeneratorOutput`), such as `tokens`.
    """

    made: Tensor
    target: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.made)

    def rows(self, first: int, end: int) -> Self:
        """Return pairs first … end - 1."""
        extra = {name: tensor[first:end] for name, tensor in self.extra.items()}
        return replace(self, made=self.made[first:end], target=self.target[first:end], extra=extra)


class Metric(ABC):
    """One number of a score, immutable: `update` and `merge` return a new metric.

    It compares `SampleFeatures` with those of real images, its reference, or `SamplePairs`.
    """

    name: ClassVar[str]
    """Key of the recorded value; the name of the file."""
    direction: ClassVar[Direction]
    note: ClassVar[str] = ""
    """One or two sentences for the report: what the value means."""
    needs: ClassVar[frozenset[Needs]] = frozenset({Needs.FEATURES})
    """What the metric reads; a score without one of these leaves it out."""
    names_extractor: ClassVar[bool] = False
    """Whether values of different extractors are different metrics: `fd[judge]`."""
    reference: ClassVar[str] = "train"
    """Split of the reference: `train`, `held_out` to compare equal numbers of images, or `both`, with all training
    images up to 60,000; `classifier` for a test on held-out images."""
    min_images: ClassVar[int] = 1
    max_images: ClassVar[int | None] = None
    """Most generated images that it compares, and real ones unless `reference` is `both`; None: no limit."""
    has_interval: ClassVar[bool] = True
    """Whether a score estimates an interval, for which it computes the value of 20 halves of the images."""
    is_share: ClassVar[bool] = False
    """Whether every value lies in [0, 1], and so the ends of its interval."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Constants that must be equal for two values to compare, for the record."""

    @classmethod
    @abstractmethod
    def from_reference(cls, real: Any, options: Any = None) -> Self:
        """Return an empty metric.

        real: features of the reference; None for pairs. options: the file's `Options`. Raises
        `ConfigError` if the reference has too few images, or lacks what the metric needs.
        """

    def protocol(self) -> dict[str, Any]:
        """Return what must be equal for two values to compare, besides the reference."""
        return dict(self.settings)

    @abstractmethod
    def update(self, samples: Any) -> Self:
        """Return a metric that includes these images, `SampleFeatures` or `SamplePairs`."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Return a metric that includes the images of both, in any order."""

    @abstractmethod
    def compute(self) -> float:
        """Return the value; `ConfigError` for too few images."""


def in_float64(values: Tensor) -> Tensor:
    """Convert to float64 on the CPU, for exact sums of products of thousands of features."""
    return values.detach().cpu().double()


def _concatenate(pieces: Iterable[Tensor | None]) -> Tensor | None:
    every = list(pieces)
    tensors = [piece for piece in every if piece is not None]
    assert len(tensors) in (0, len(every)), "all pieces have it, or none"
    return torch.cat(tensors) if tensors else None
