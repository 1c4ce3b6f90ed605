"""Extractors of the package, one per data set, trained by `benchmarks/train_extractors.py`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import PretrainedOptions
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.features.base.weight_files import build_with_weights

FOLDER = Path(__file__).with_name("_weights")
_NUM_FEATURES = 64


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
        info: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))
        return info

    def accepts(self, shape: tuple[int, int, int]) -> bool:
        """Return whether images of this shape are valid inputs."""
        channels, height, width = shape
        return height == width and height in self.crops and channels == self.shape[0]

    def prepare(self, options: PretrainedOptions, context: ExtractorContext) -> FeatureExtractor:
        """Read the network. Raises `DataError` if its file is damaged."""
        return FeatureExtractor(
            name=context.name,
            network=self.network(),
            shape=self.shape,
            num_classes=10,
            sha256=self.info["sha256"],
            crop=self.crops.get(context.train.shape[-1], 0),
            **context.call_settings(options),
        )

    def network(self) -> nn.Module:
        """Return the network with its weights. Raises `DataError` if its file is damaged."""
        try:
            network, _ = build_with_weights(self.make, self.weights, self.info["sha256"])
        except DataError:
            what = "is damaged" if self.weights.is_file() else "is missing"
            raise DataError(
                f"{self.weights}: this file of the package {what}; install paragan again, or use "
                "evaluation.features=judge"
            ) from None
        return network


class ResidualCnn(nn.Module):
    """Residual network with 64 features >= 0, the mean of the last map, and logits of the classes.

    Input (B, channels, H, W) in [-1, 1]. widths: channels of the first and the second map at 1/2 of
    the resolution, of those at 1/4, and of those at 1/8. Source of the block: K. He et al., "Deep residual learning for
    image recognition", CVPR 2016, section 3.2.
    """

    def __init__(self, channels: int, widths: tuple[int, int, int, int], num_classes: int = 10) -> None:
        super().__init__()
        stem, half, quarter, eighth = widths
        self.features = nn.Sequential(
            *_conv(channels, stem, size=4, stride=2, padding=1),
            *_conv(stem, half),
            nn.MaxPool2d(2),
            *_conv(half, quarter),
            *_conv(quarter, quarter),
            nn.MaxPool2d(2),
            *_conv(quarter, eighth),
            _Block(eighth),
            *_conv(eighth, _NUM_FEATURES, size=1, padding=0),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.logits = nn.Linear(_NUM_FEATURES, num_classes)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        features_BF = self.features(x_BCHW)
        return features_BF, self.logits(features_BF)


class _Block(nn.Module):
    """Two convolutions whose output is added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(*_conv(width, width), *_conv(width, width))

    def forward(self, h: Tensor) -> Tensor:
        added: Tensor = h + self.convs(h)
        return added


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, padding: int = 1) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, size, stride, padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
