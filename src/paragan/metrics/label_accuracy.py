"""Share of conditional samples that the judge classifies as the requested label; higher is better.

Source: "GAN-test" of K. Shmelkov, C. Schmid, K. Alahari, "How good is my GAN?", ECCV 2018, section 3. A generator that
shows one good image per class scores 1: read it together with the variance within classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paragan.core.errors import ConfigError
from paragan.metrics._sample_features import SampleFeatures


@dataclass(frozen=True)
class Metric:
    """label_accuracy in [0, 1]. Immutable: `update` and `merge` return a new metric."""

    name: ClassVar[str] = "label_accuracy"
    recognised: int = 0
    count: int = 0

    @classmethod
    def from_reference(cls, real: SampleFeatures) -> Metric:
        """An empty metric; the real images are not used."""
        return cls()

    def update(self, judged: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        if judged.logits_BK is None or judged.requested_labels_B is None:
            raise ConfigError("label accuracy needs the logits of a classifier and the requested labels")
        right = int((judged.logits_BK.argmax(1) == judged.requested_labels_B).sum())
        return Metric(self.recognised + right, self.count + len(judged))

    def merge(self, other: Metric) -> Metric:
        """Return a metric that includes the images of both."""
        return Metric(self.recognised + other.recognised, self.count + other.count)

    def compute(self) -> float:
        """The value of the metric."""
        if not self.count:
            raise ConfigError("label accuracy needs at least 1 image; raise evaluation.num_images")
        return self.recognised / self.count
