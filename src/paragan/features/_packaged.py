"""Extractors of the package, one per data set, trained by `benchmarks/train_extractors.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from paragan.core.errors import DataError
from paragan.core.option_types import PretrainedOptions
from paragan.features._extractor import ExtractorContext, FeatureExtractor
from paragan.features._weight_files import build_with_weights

FOLDER = Path(__file__).with_name("_weights")


@dataclass(frozen=True)
class PackagedExtractor:
    """Extractor of ten classes with weights in `_weights/NAME.safetensors`, sha256 in `NAME.json`.

    name: of the data set whose training images it was trained on. shape: (C, H, W) of its inputs.
    crops: pixels cut off at each edge, by image size.
    """

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    crops: Mapping[int, int]

    @property
    def weights(self) -> Path:
        """File of the weights, in half precision."""
        return FOLDER / f"{self.name}.safetensors"

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the weights: sha256, trained_on, trained_by, and accuracy by test images."""
        found: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))
        return found

    def accepts(self, shape: tuple[int, int, int]) -> bool:
        """Return whether images of this shape are valid inputs."""
        channels, height, width = shape
        return height == width and height in self.crops and channels == self.shape[0]

    def prepare(self, options: PretrainedOptions, context: ExtractorContext) -> FeatureExtractor:
        """Read the network. Raises `DataError` if its file is damaged."""
        try:
            network, sha256 = build_with_weights(self.make, self.weights, self.info["sha256"])
        except DataError:
            what = "is damaged" if self.weights.is_file() else "is missing"
            raise DataError(
                f"{self.weights}: this file of the package {what}; install paragan again, or use "
                "evaluation.features=judge"
            ) from None
        crop = self.crops.get(context.train.shape[-1], 0)
        settings = context.call_settings(options)
        return FeatureExtractor(context.name, network, self.shape, 10, sha256, crop=crop, **settings)
