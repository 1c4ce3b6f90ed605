"""LeNet for MNIST, 50 features, weights from a file."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import FileExtractorOptions
from paragan.features._extractor import ExtractorContext, FeatureExtractor
from paragan.features._weight_files import extractor_from_file

_FRAMES = {28: 0, 32: 2}  # image size -> pixels cut off at each edge


@dataclass(frozen=True)
class Options(FileExtractorOptions):
    """File of the weights, and settings for calling the network."""


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` without a file, `DataError` for another file."""
    crop = _FRAMES.get(context.train.shape[-1], 0)
    return extractor_from_file(MnistCnn, (1, 28, 28), "mnist_cnn.npz", options, context, crop)


class MnistCnn(nn.Module):
    """LeNet with 50 ReLU features and 10 logits, for (B, 1, 28, 28) in [-1, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(F.max_pool2d(self.conv1(x_BCHW), 2))
        h = F.relu(F.max_pool2d(self.conv2(h), 2)).flatten(1)
        features_BF = F.relu(self.fc1(h))
        return features_BF, self.fc2(features_BF)
