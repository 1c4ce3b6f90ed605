"""Extractor of features for images without a run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch

from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.scorer import extractor_name
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.hardware.device import device_by_name

_SIDE = 32  # of images that stand for those of a data set; extractors read their channels alone


def open_extractor(features: str, device: str = "auto") -> FeatureExtractor:
    """Return an extractor by its name, the path of a .pt2 file, or {name: …, …} as in a recipe.

    Raises `ConfigError` for one that is trained on the images of a run.
    """
    if features.endswith(".pt2"):
        features = f"{{name: exported, weights: {json.dumps(features)}}}"
    chosen = read_recipe("digits", [f"evaluation.features={features}"]).evaluation.features
    if chosen is None or chosen.name in ("auto", "judge"):
        raise ConfigError(
            f"--features {features}: it belongs to a run; choose inception, cifar10, mnist, or a .pt2 file"
        )
    images = InMemorySource(torch.zeros(2, 3, _SIDE, _SIDE, dtype=torch.uint8))
    context = ExtractorContext(
        name=extractor_name(chosen),
        train=images,
        held_out=images,
        device=device_by_name(device),
        say=lambda line: print(line, file=sys.stderr),
    )
    prepared = registry.load_module("features", chosen.name).prepare(chosen.options, context)
    extractor: FeatureExtractor = prepared if isinstance(prepared, FeatureExtractor) else prepared()
    return replace(extractor, name=extractor_name(chosen))
