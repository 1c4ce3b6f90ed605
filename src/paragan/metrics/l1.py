"""Mean absolute difference to the target; lower is better, 0 is equal."""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.core.outputs import mean_per_sample
from paragan.metrics.base.mean import PairMetric


@dataclass(frozen=True)
class Metric(PairMetric):
    """L1 distance: 0 to 2 for values in [-1, 1]. Blurred images have a good one; look at the samples."""

    name = "l1"
    direction = Direction.LOWER
    note = "Mean absolute difference between generated and target samples; images have values in [-1, 1]."

    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the L1 distance of each pair, float64 (B,)."""
        return mean_per_sample((generated_B - target_B).abs())
