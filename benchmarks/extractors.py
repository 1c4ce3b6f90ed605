"""Feature extractors of the comparisons, with weights next to the data."""

from __future__ import annotations

from paragan.core import registry
from paragan.core.source import Source
from paragan.features._extractor import ExtractorContext, FeatureExtractor


def extractor_next_to(data: str, name: str, source: Source) -> FeatureExtractor:
    """The extractor `name` for images of this source. data: folder that its weights are searched from."""
    options = registry.options("features", name)()
    found: FeatureExtractor = registry.load_module("features", name).prepare(
        options, ExtractorContext(name, source, source, path=data)
    )
    return found
