"""Feature extractors as a run prepares them, for the images of one source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from paragan.core import registry
from paragan.datasets._in_memory import InMemorySource
from paragan.features._extractor import ExtractorContext, FeatureExtractor


def prepared(name: str, source: Any = None, path: str | None = None, **options: Any) -> FeatureExtractor:
    """The extractor `name` with these options. source: images that it is for; path: of their data."""
    chosen = registry.options("features", name)(**options)
    module = registry.load_module("features", name)
    context = ExtractorContext(name, source, source, path=path)
    found = module.prepare(chosen, context)
    return found if isinstance(found, FeatureExtractor) else found()


def blank(*shape: int) -> InMemorySource:
    """Two black images without labels."""
    return InMemorySource(torch.zeros(2, *shape, dtype=torch.uint8))


def from_file(name: str, file: Path, source: Any = None, **options: Any) -> FeatureExtractor:
    """The extractor `name` with the weights of a file; without a source, for images of its size."""
    shape = (1, 28, 28) if name == "mnist_cnn" else (3, 32, 32)
    return prepared(name, source or blank(*shape), weights=str(file), **options)
