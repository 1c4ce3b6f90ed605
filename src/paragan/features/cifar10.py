"""Packaged residual network of 64 features, trained on 53,200 images of CIFAR-10.

It classifies 85% of the 10,000 test images correctly, stored as JPEG files.
"""

from dataclasses import dataclass

from paragan.core.option_types import PretrainedOptions
from paragan.features._packaged import PackagedExtractor, ResidualCnn


@dataclass(frozen=True)
class Options(PretrainedOptions):
    """Images of another size."""


EXTRACTOR = PackagedExtractor(
    name="cifar10", make=lambda: ResidualCnn(channels=3, widths=(32, 48, 96, 112)), shape=(3, 32, 32), crops={32: 0}
)
accepts = EXTRACTOR.accepts
prepare = EXTRACTOR.prepare
