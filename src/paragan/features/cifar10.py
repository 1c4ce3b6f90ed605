"""Packaged residual network of 64 features, trained on 53,200 of CIFAR-10's images; 85% of the 10,000 test
images as JPEG files are classified correctly."""

from __future__ import annotations

from dataclasses import dataclass

from paragan.core.option_types import PretrainedOptions
from paragan.features._packaged import PackagedExtractor
from paragan.features._residual_cnn import ResidualCnn


@dataclass(frozen=True)
class Options(PretrainedOptions):
    """How the network is called."""


EXTRACTOR = PackagedExtractor("cifar10", lambda: ResidualCnn(3, (32, 48, 96, 112)), (3, 32, 32), {32: 0})
accepts = EXTRACTOR.accepts
prepare = EXTRACTOR.prepare
