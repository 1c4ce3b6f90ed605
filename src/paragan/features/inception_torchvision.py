"""Inception network of torchvision, whose features BigGAN-PyTorch compares; not that of the published FID.

Sources: C. Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016;
the weights are those of torchvision's `inception_v3`. Values differ from the FID of papers: other
weights, other pooling and another resize.
"""

from dataclasses import dataclass

from paragan.core.option_types import FilePath
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.features.base.inception_weights import inception_extractor


@dataclass(frozen=True)
class Options:
    """File of the public weights."""

    weights: FilePath | None = None
    """The file of torchvision; null: the one that `paragan metrics import-weights` stored."""


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` without its weights, `DataError` for another file."""
    return inception_extractor("inception_torchvision", options.weights, context, {})
