"""Packaged residual network of 64 features, trained on the 60,000 training images of MNIST.

It classifies 99.6% of the 10,000 test images correctly.
"""

from dataclasses import dataclass

from paragan.core.option_types import PretrainedOptions
from paragan.features._packaged import PackagedExtractor, ResidualCnn


@dataclass(frozen=True)
class Options(PretrainedOptions):
    """Images of another size."""


EXTRACTOR = PackagedExtractor(
    name="mnist", make=lambda: ResidualCnn(channels=1, widths=(16, 32, 64, 64)), shape=(1, 28, 28), crops={28: 0, 32: 2}
)
accepts = EXTRACTOR.accepts
prepare = EXTRACTOR.prepare
