"""Share of conditional samples that the judge recognises as the class asked for; higher is better.

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
    """label_accuracy in [0, 1]. A value: `update` and `merge` return the next one."""

    name: ClassVar[str] = "label_accuracy"
    recognised: int = 0
    count: int = 0

    @classmethod
    def from_reference(cls, real: SampleFeatures) -> Metric:
        """Nothing seen yet. What counts is the class asked for; the real images play no part."""
        return cls()

    def update(self, judged: SampleFeatures) -> Metric:
        if judged.logits_BK is None or judged.requested_labels_B is None:
            raise ConfigError(
                "label accuracy: found images without classes, expected a classifier's logits and the class asked for"
            )
        right = int((judged.logits_BK.argmax(1) == judged.requested_labels_B).sum())
        return Metric(self.recognised + right, self.count + len(judged))

    def merge(self, other: Metric) -> Metric:
        return Metric(self.recognised + other.recognised, self.count + other.count)

    def compute(self) -> float:
        if not self.count:
            raise ConfigError("score.num_images: found no images, expected at least 1 for a label accuracy; raise it")
        return self.recognised / self.count
