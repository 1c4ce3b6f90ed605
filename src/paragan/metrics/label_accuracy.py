"""Share of conditional samples that the judge assigns to their label; higher is better.

Source: "GAN-test" of K. Shmelkov, C. Schmid, K. Alahari, "How good is my GAN?", ECCV 2018, section
3. A generator of one good image per class scores 1: read it together with the variance within
classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paragan.core import metric
from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, Needs, SampleFeatures


@dataclass(frozen=True)
class Metric(metric.Metric):
    """Accuracy in [0, 1]."""

    name = "label_accuracy"
    direction = Direction.HIGHER
    note = (
        "Share of generated images that the classifier assigns to the class they were generated "
        "for. One good image per class scores 1: interpret it together with the class variances."
    )
    needs = frozenset({Needs.LOGITS, Needs.LABELS})
    order = 1
    recognised: int = 0
    count: int = 0

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: Any = None) -> Metric:
        """Return an empty metric; the real images are not used."""
        return cls()

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        if samples.logits_BK is None or samples.requested_labels_B is None:
            raise ConfigError("label accuracy needs the logits of a classifier and the requested labels")
        right = int((samples.logits_BK.argmax(1) == samples.requested_labels_B).sum())
        return Metric(self.recognised + right, self.count + len(samples))

    def merge(self, other: Metric) -> Metric:
        """Return a metric that includes the images of both."""
        return Metric(self.recognised + other.recognised, self.count + other.count)

    def compute(self) -> float:
        """Return the share of correct labels."""
        if not self.count:
            raise ConfigError("label accuracy needs at least 1 image; raise evaluation.num_images")
        return self.recognised / self.count
