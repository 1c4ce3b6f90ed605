"""Inception network of the published FID and Inception score, with its public weights.

Source: M. Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash
equilibrium", NeurIPS 2017; the weights are those of pytorch-fid and torch-fidelity.
"""

from dataclasses import dataclass

from paragan.core.option_types import FilePath
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.features.base.inception_weights import inception_extractor

PUBLISHED_NAMES = {"fd": "fid", "intra_class_fd": "intra_class_fid", "kid": "kid", "inception_score": "inception_score"}


@dataclass(frozen=True)
class Options:
    """File of the public weights."""

    weights: FilePath | None = None
    """The file of pytorch-fid or torch-fidelity; null: the one that `paragan metrics import-weights` stored."""


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` without its weights, `DataError` for another file."""
    return inception_extractor("inception", options.weights, context, PUBLISHED_NAMES)
