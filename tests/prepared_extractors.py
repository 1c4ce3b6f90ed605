"""Feature extractors as a run prepares them, for the images of one source."""

from typing import Any

import torch

from paragan.core import registry
from paragan.datasets.base.in_memory import InMemorySource
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor


def prepared(name: str, source: Any = None, **options: Any) -> FeatureExtractor:
    """The extractor `name` with these options. source: images that it is for."""
    chosen = registry.options("features", name)(**options)
    module = registry.load_module("features", name)
    context = ExtractorContext(name=name, train=source, held_out=source)
    found = module.prepare(chosen, context)
    return found if isinstance(found, FeatureExtractor) else found()


def blank(*shape: int) -> InMemorySource:
    """Two black images without labels."""
    return InMemorySource(torch.zeros(2, *shape, dtype=torch.uint8))
