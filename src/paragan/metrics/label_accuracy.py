"""Share of conditional samples that the judge assigns to their label; higher is better.

Source: "GAN-test" of K. Shmelkov, C. Schmid, K. Alahari, "How good is my GAN?", ECCV 2018, section
3. A generator of one good image per class scores 1: read it together with the variance within
classes.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, Needs, SampleFeatures
from paragan.metrics.base.mean import MeanMetric


@dataclass(frozen=True)
class Metric(MeanMetric):
    """Accuracy in [0, 1]."""

    name = "label_accuracy"
    is_share = True
    direction = Direction.HIGHER
    note = (
        "Share of generated images that the classifier assigns to the class they were generated "
        "for. One good image per class scores 1: interpret it together with the class variances."
    )
    needs = frozenset({Needs.CLASS_LOGITS, Needs.LABELS})

    def of_each(self, samples: SampleFeatures) -> Tensor:
        """Return 1 for each image with the requested label, else 0, float64 (B,)."""
        if samples.logits_BK is None or samples.requested_labels_B is None:
            raise ConfigError("label accuracy needs the logits of a classifier and the requested labels")
        return (samples.logits_BK.argmax(1) == samples.requested_labels_B).double()
