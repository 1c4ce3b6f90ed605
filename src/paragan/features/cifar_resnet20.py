"""ResNet-20 for CIFAR-10, 64 features, weights from a file."""

from __future__ import annotations

from dataclasses import dataclass

from paragan.core.option_types import FileExtractorOptions
from paragan.features._cifar_resnet import CifarResNet
from paragan.features._extractor import ExtractorContext, FeatureExtractor
from paragan.features._weight_files import extractor_from_file


@dataclass(frozen=True)
class Options(FileExtractorOptions):
    """File of the weights, and settings for calling the network."""


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` without a file, `DataError` for another file."""
    return extractor_from_file(lambda: CifarResNet(blocks=3), (3, 32, 32), "resnet20_cifar10.npz", options, context)
