"""Residual network of the CIFAR extractors, whose weights are read from a file."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CifarResNet(nn.Module):
    """Residual network of 6 n + 2 layers for images of 32x32 (He et al. 2016, section 4.2).

    (B, 3, 32, 32) in [-1, 1] to 64 features, the mean of the last map, and 10 logits. n `blocks` at
    each of three resolutions; short-cuts without weights ("option A").
    """

    # of images in [0, 1], as the weights were trained
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = _conv(3, 16)
        self.bn1 = _FixedNorm(16)
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
    """Two 3x3 convolutions and a short-cut; for a new width, stride 2 and zeros in new channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride, self.added = (1, 0) if inputs == outputs else (2, (outputs - inputs) // 2)
        self.conv1 = _conv(inputs, outputs, self.stride)
        self.bn1 = _FixedNorm(outputs)
        self.conv2 = _conv(outputs, outputs)
        self.bn2 = _FixedNorm(outputs)

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
