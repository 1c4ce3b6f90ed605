"""Pretrained classifiers whose weights are read from an npz; each returns (features, logits)."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from paragan.core.errors import ConfigError, DataError
from paragan.storage import npz

_MOST_BYTES = 1 << 20
# What np.load raises for text, a lone array, a cut or altered archive, an array that is too large.
_NOT_AN_NPZ = (OSError, ValueError, TypeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)


class MnistCnn(nn.Module):
    """LeNet-like: (B, 1, 28, 28) in [-1, 1] to 50 ReLU features and 10 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(F.max_pool2d(self.conv1(x_BCHW), 2))
        h = F.relu(F.max_pool2d(self.conv2(h), 2)).flatten(1)
        features_BF = F.relu(self.fc1(h))
        return features_BF, self.fc2(features_BF)


class CifarResNet(nn.Module):
    """(B, 3, 32, 32) in [-1, 1] to 64 features, the mean of the last map, and 10 logits (He et al. 2016, section 4.2).

    6 n + 2 layers for n `blocks` at each of three resolutions; short-cuts without weights ("option A").
    """

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of images in [0, 1], as the weights were trained

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(3, 16), _FixedNorm(16)
        self.layer1 = nn.Sequential(*(_Block(16, 16) for _ in range(blocks)))
        self.layer2 = nn.Sequential(_Block(16, 32), *(_Block(32, 32) for _ in range(blocks - 1)))
        self.layer3 = nn.Sequential(_Block(32, 64), *(_Block(64, 64) for _ in range(blocks - 1)))
        self.linear = nn.Linear(64, 10)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (x_BCHW.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        h = self.bn1(self.conv1(((x_BCHW + 1) / 2 - mean) / std)).relu()
        features_BF = self.layer3(self.layer2(self.layer1(h))).mean((2, 3))
        return features_BF, self.linear(features_BF)


class _Block(nn.Module):
    """Two 3x3 convolutions and a short cut; where the width doubles, it has stride 2 and new channels of zeros."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride, self.added = (1, 0) if inputs == outputs else (2, (outputs - inputs) // 2)
        self.conv1, self.bn1 = _conv(inputs, outputs, self.stride), _FixedNorm(outputs)
        self.conv2, self.bn2 = _conv(outputs, outputs), _FixedNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        short_cut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added, self.added))
        return (h + short_cut).relu()


class _FixedNorm(nn.Module):
    """Batch norm with fixed statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(channels)) for _ in range(2))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))

    def forward(self, h: Tensor) -> Tensor:
        return F.batch_norm(h, self.running_mean, self.running_var, self.weight, self.bias, eps=1e-5)


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


@dataclass(frozen=True)
class Extractor:
    """One classifier. make: builds it. file: name of the weights next to the data. description: for messages."""

    make: Callable[[], nn.Module]
    file: str
    shape: tuple[int, int, int]
    description: str


_MNIST_WEIGHTS = "weight and bias of conv1 (10, 1, 5, 5), conv2 (20, 10, 5, 5), fc1 (50, 320), fc2 (10, 50) as floats"
_RESNET_WEIGHTS = "conv1, bn1, layer1 to layer3, linear as floats"

EXTRACTORS = {
    "mnist-cnn": Extractor(MnistCnn, "mnist_cnn.npz", (1, 28, 28), f"the MNIST CNN ({_MNIST_WEIGHTS})"),
    "cifar-resnet20": Extractor(
        lambda: CifarResNet(3), "resnet20_cifar10.npz", (3, 32, 32), f"the CIFAR ResNet-20 ({_RESNET_WEIGHTS})"
    ),
    "cifar-resnet56": Extractor(
        lambda: CifarResNet(9), "resnet56_cifar10.npz", (3, 32, 32), f"the CIFAR ResNet-56 ({_RESNET_WEIGHTS})"
    ),
}


def load_extractor(name: str, path: Path) -> nn.Module:
    """Load the network with the weights of an npz. Raises `DataError` if the file is missing or has other arrays."""
    extractor = EXTRACTORS[name]
    with torch.device("meta"):  # no initial weights: none are drawn from the global random state
        net = extractor.make()
    wanted = {key: tuple(tensor.shape) for key, tensor in net.state_dict().items()}
    arrays = _arrays(
        path,
        wanted,
        f"expected the npz of {extractor.description}; check evaluation.weights, or use evaluation.features=auto",
    )
    weights = {key: torch.from_numpy(array.astype(np.float32)) for key, array in arrays.items()}
    net.load_state_dict(weights, assign=True)
    return net


def find_weights(data: str | None, name: str) -> Path:
    """Find the weights of an extractor in or next to the data folder. Raises `ConfigError` if there are none."""
    file, folder = EXTRACTORS[name].file, Path(data or "")
    candidates = [folder / file, folder.parent / "classifiers" / file, folder.parent.parent / "classifiers" / file]
    found = next((path for path in candidates if data and path.exists()), None)
    if found is None:
        where = f" next to {data}" if data else ""
        raise ConfigError(
            f"evaluation.weights is required for the extractor {name!r} (no {file}{where}); pass "
            "evaluation.weights=FILE, or use evaluation.features=auto"
        )
    return found


def _arrays(path: Path, wanted: dict[str, tuple[int, ...]], expected: str) -> dict[str, NDArray[Any]]:
    try:
        there = npz.array_names(path)
        found = {name: npz.read_array(path, name, _MOST_BYTES) for name in there[: len(wanted) + 1]}
    except DataError as error:
        raise DataError(f"{error}; {expected}") from None
    if {name: (array.shape, array.dtype.kind) for name, array in found.items()} != {
        name: (shape, "f") for name, shape in wanted.items()
    }:
        shown = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise DataError(f"{path}: found the arrays {shown[:200] or '(none)'}, {expected}")
    return found
