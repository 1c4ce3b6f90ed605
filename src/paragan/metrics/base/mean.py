"""Metrics that are the mean of a value per sample, or per pair of generated and target sample."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs, SamplePairs, in_float64
from paragan.core.printable import counted
from paragan.metrics._options import RangeOptions
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class MeanMetric(RunningMetric):
    """Mean of a value per image."""

    added = ("total", "count")
    total: float = 0.0
    count: int = 0

    @classmethod
    def from_reference(cls, real: Any = None, options: Any = None) -> Self:
        """Return an empty metric; the reference is not used."""
        return cls()

    def update(self, samples: Any) -> Self:
        """Return a metric that includes these images. Raises `ConfigError` for other values."""
        values = self.of_each(samples)
        count = len(samples)
        shape = tuple(values.shape) if isinstance(values, Tensor) else None
        if shape != (count,):
            returned = f"a {type(values).__name__}" if shape is None else f"a tensor of {shape}"
            problem = f"evaluation.metrics: {self.name} returned {returned} for {counted(count, 'sample')}"
            raise ConfigError(f"{problem}; return one value per sample, (B,)")
        return self.including(total=float(values.sum()), count=count)

    def compute(self) -> float:
        """Return the mean over all images. Raises `ConfigError` without images."""
        if not self.count:
            raise ConfigError(f"score: {self.name} has no images to compare; use data with at least one held-out image")
        return self.total / self.count

    @abstractmethod
    def of_each(self, samples: Any) -> Tensor:
        """Return the value of each image, float64 (B,)."""


@dataclass(frozen=True)
class PairMetric(MeanMetric):
    """Mean of a value per pair of generated and target sample, which `compare` returns."""

    needs = frozenset({Needs.PAIRS})
    reference = "held_out"

    def of_each(self, samples: SamplePairs) -> Tensor:
        """Return the value of each pair, float64 (B,)."""
        return self.compare(in_float64(samples.made), in_float64(samples.target))

    @abstractmethod
    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the value of each pair, float64 (B,). Both are float64 (B, *shape), on the CPU."""


@dataclass(frozen=True)
class RangeMetric(PairMetric):
    """A `PairMetric` of values between `low` and `high`."""

    low: float = -1.0
    high: float = 1.0

    @classmethod
    def from_reference(cls, real: Any = None, options: RangeOptions | None = None) -> Self:
        """Return an empty metric; the reference is not used."""
        low, high = RangeOptions().range if options is None else options.range
        return cls(low=low, high=high)

    @property
    def peak(self) -> float:
        """Difference of the highest and the lowest value."""
        return self.high - self.low

    def protocol(self) -> dict[str, Any]:
        """Return the range, unless it is that of images."""
        limits = (self.low, self.high)
        return {} if limits == RangeOptions().range else {"range": list(limits)}
