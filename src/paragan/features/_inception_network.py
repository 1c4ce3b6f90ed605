"""Inception v3 with the names of the public weights, in the two variants that are published.

`TORCHVISION` is the classifier of C. Szegedy et al., "Rethinking the Inception architecture for
computer vision", CVPR 2016, as torchvision has it. `TENSORFLOW` is that of the FID's reference
implementation, converted from TensorFlow's graph of 2015-12-05. It differs in its outputs, in the
padding of average pooling, in the pooling of the last block, and in how images are resized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 299
NUM_FEATURES = 2048
ImageMap = Callable[[Tensor], Tensor]


class InceptionNetwork(nn.Module):
    """A published Inception network: x_BCHW in [-1, 1] to 2048 features, and logits.

    Images have three channels, or one that is repeated, and any size; they are rounded to 8 bits,
    as if they had been saved.
    """

    def __init__(self, variant: InceptionVariant) -> None:
        super().__init__()
        self.variant = variant
        average = variant.average
        self.Conv2d_1a_3x3 = _Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = _Conv(32, 32, 3)
        self.Conv2d_2b_3x3 = _Conv(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = _Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = _Conv(80, 192, 3)
        self.Mixed_5b = _BlockA(192, 32, average)
        self.Mixed_5c = _BlockA(256, 64, average)
        self.Mixed_5d = _BlockA(288, 64, average)
        self.Mixed_6a = _BlockB(288)
        self.Mixed_6b = _BlockC(768, 128, average)
        self.Mixed_6c = _BlockC(768, 160, average)
        self.Mixed_6d = _BlockC(768, 160, average)
        self.Mixed_6e = _BlockC(768, 192, average)
        self.Mixed_7a = _BlockD(768)
        self.Mixed_7b = _BlockE(1280, average)
        self.Mixed_7c = _BlockE(2048, variant.last_pool)
        self.fc = nn.Linear(NUM_FEATURES, variant.num_classes)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.variant.prepare(_to_pixels(x_BCHW))
        h = self.Conv2d_1a_3x3(inputs.to(x_BCHW.dtype))
        h = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(h))
        h = F.max_pool2d(h, 3, stride=2)
        h = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(h))
        h = F.max_pool2d(h, 3, stride=2)
        h = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(h)))
        h = self.Mixed_6a(h)
        h = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(h))))
        h = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(h)))
        features_BF = h.mean((2, 3))
        bias = self.fc.bias if self.variant.has_bias else None
        return features_BF, F.linear(features_BF, self.fc.weight, bias)


@dataclass(frozen=True, kw_only=True)
class InceptionVariant:
    """What differs between the published networks.

    num_classes: number of logits. has_bias: the logits have one; those of the published Inception
    score do not. average: pooling over each pixel and its neighbours. last_pool: the same in the
    last block. prepare: pixels (B, 3, H, W) from 0 to 255 to inputs (B, 3, 299, 299). resize: name
    of the filter in it. unused: modules of the file that are not read.
    """

    num_classes: int
    has_bias: bool
    average: ImageMap
    last_pool: ImageMap
    prepare: ImageMap
    resize: str
    unused: tuple[str, ...] = ()


def resize_like_tensorflow(x_BCHW: Tensor, height: int, width: int) -> Tensor:
    """Resize by `tf.image.resize_bilinear` of TensorFlow 1: without antialiasing.

    Output pixel i lies at i * input / output, not at pixel centres, and beyond the last pixel the last one is repeated.
    """
    top, bottom, down = _neighbours(x_BCHW.shape[2], height, x_BCHW)
    rows = torch.lerp(x_BCHW[:, :, top], x_BCHW[:, :, bottom], down[:, None])
    left, right, across = _neighbours(x_BCHW.shape[3], width, x_BCHW)
    return torch.lerp(rows[..., left], rows[..., right], across)


def _neighbours(inputs: int, outputs: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each output pixel, the two input pixels around it and the weight of the second."""
    # The position is computed in float32 by TensorFlow.
    place = torch.arange(outputs, device=like.device, dtype=torch.float32) * (inputs / outputs)
    first = place.long()
    second = (first + 1).clamp(max=inputs - 1)
    return first, second, (place - first).to(like.dtype)


def _to_pixels(x_BCHW: Tensor) -> Tensor:
    """Round images in [-1, 1] to 8 bits, in float32 or float64 and with three channels."""
    x_BCHW = x_BCHW.to(torch.promote_types(x_BCHW.dtype, torch.float32))
    pixels = ((x_BCHW + 1) * 127.5).round().clamp(0, 255)
    return pixels.expand(-1, 3, -1, -1) if pixels.shape[1] == 1 else pixels


def _tensorflow_input(pixels: Tensor) -> Tensor:
    return (resize_like_tensorflow(pixels, SIZE, SIZE) - 128) / 128


def _torchvision_input(pixels: Tensor) -> Tensor:
    return F.interpolate(pixels, (SIZE, SIZE), mode="bilinear", antialias=True) / 127.5 - 1


TENSORFLOW = InceptionVariant(
    num_classes=1008,
    has_bias=False,
    average=partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False),
    last_pool=partial(F.max_pool2d, kernel_size=3, stride=1, padding=1),
    prepare=_tensorflow_input,
    resize="bilinear of TensorFlow 1",
)
_AVERAGE = partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1)
TORCHVISION = InceptionVariant(
    num_classes=1000,
    has_bias=True,
    average=_AVERAGE,
    last_pool=_AVERAGE,
    prepare=_torchvision_input,
    resize="antialiased bilinear",
    unused=("AuxLogits.",),
)


class _Conv(nn.Module):
    """Convolution without bias, batch norm with epsilon 0.001, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, h: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(h)))


class _BlockA(nn.Module):
    """Branches of 1x1, 5x5, two 3x3 and pooling, at 35x35."""

    def __init__(self, inputs: int, pooled: int, average: ImageMap) -> None:
        super().__init__()
        self.average = average
        self.branch1x1 = _Conv(inputs, 64, 1)
        self.branch5x5_1 = _Conv(inputs, 48, 1)
        self.branch5x5_2 = _Conv(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = _Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = _Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = _Conv(96, 96, 3, padding=1)
        self.branch_pool = _Conv(inputs, pooled, 1)

    def forward(self, h: Tensor) -> Tensor:
        by_5x5 = self.branch5x5_2(self.branch5x5_1(h))
        by_3x3 = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(h)))
        return torch.cat([self.branch1x1(h), by_5x5, by_3x3, self.branch_pool(self.average(h))], 1)


class _BlockB(nn.Module):
    """From 35x35 to 17x17: branches of 3x3, two 3x3 and pooling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = _Conv(inputs, 384, 3, stride=2)
        self.branch3x3dbl_1 = _Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = _Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = _Conv(96, 96, 3, stride=2)

    def forward(self, h: Tensor) -> Tensor:
        by_two = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(h)))
        return torch.cat([self.branch3x3(h), by_two, F.max_pool2d(h, 3, stride=2)], 1)


class _BlockC(nn.Module):
    """Branches of 1x1, 7x7 and two 7x7, each as 1x7 and 7x1, and pooling, at 17x17."""

    def __init__(self, inputs: int, width: int, average: ImageMap) -> None:
        super().__init__()
        self.average = average
        self.branch1x1 = _Conv(inputs, 192, 1)
        self.branch7x7_1 = _Conv(inputs, width, 1)
        self.branch7x7_2 = _Conv(width, width, (1, 7), padding=(0, 3))
        self.branch7x7_3 = _Conv(width, 192, (7, 1), padding=(3, 0))
        self.branch7x7dbl_1 = _Conv(inputs, width, 1)
        self.branch7x7dbl_2 = _Conv(width, width, (7, 1), padding=(3, 0))
        self.branch7x7dbl_3 = _Conv(width, width, (1, 7), padding=(0, 3))
        self.branch7x7dbl_4 = _Conv(width, width, (7, 1), padding=(3, 0))
        self.branch7x7dbl_5 = _Conv(width, 192, (1, 7), padding=(0, 3))
        self.branch_pool = _Conv(inputs, 192, 1)

    def forward(self, h: Tensor) -> Tensor:
        by_one = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(h)))
        by_two = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(h)))
        by_two = self.branch7x7dbl_5(self.branch7x7dbl_4(by_two))
        return torch.cat([self.branch1x1(h), by_one, by_two, self.branch_pool(self.average(h))], 1)


class _BlockD(nn.Module):
    """From 17x17 to 8x8: branches of 3x3, 7x7 with 3x3, and pooling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = _Conv(inputs, 192, 1)
        self.branch3x3_2 = _Conv(192, 320, 3, stride=2)
        self.branch7x7x3_1 = _Conv(inputs, 192, 1)
        self.branch7x7x3_2 = _Conv(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7x3_3 = _Conv(192, 192, (7, 1), padding=(3, 0))
        self.branch7x7x3_4 = _Conv(192, 192, 3, stride=2)

    def forward(self, h: Tensor) -> Tensor:
        by_3x3 = self.branch3x3_2(self.branch3x3_1(h))
        by_7x7 = self.branch7x7x3_2(self.branch7x7x3_1(h))
        by_7x7 = self.branch7x7x3_4(self.branch7x7x3_3(by_7x7))
        return torch.cat([by_3x3, by_7x7, F.max_pool2d(h, 3, stride=2)], 1)


class _BlockE(nn.Module):
    """Branches of 1x1, 3x3 and two 3x3, the last 3x3 as 1x3 next to 3x1, and pooling, at 8x8."""

    def __init__(self, inputs: int, pool: ImageMap) -> None:
        super().__init__()
        self.pool = pool
        self.branch1x1 = _Conv(inputs, 320, 1)
        self.branch3x3_1 = _Conv(inputs, 384, 1)
        self.branch3x3_2a = _Conv(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3_2b = _Conv(384, 384, (3, 1), padding=(1, 0))
        self.branch3x3dbl_1 = _Conv(inputs, 448, 1)
        self.branch3x3dbl_2 = _Conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = _Conv(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3dbl_3b = _Conv(384, 384, (3, 1), padding=(1, 0))
        self.branch_pool = _Conv(inputs, 192, 1)

    def forward(self, h: Tensor) -> Tensor:
        by_one = self.branch3x3_1(h)
        by_two = self.branch3x3dbl_2(self.branch3x3dbl_1(h))
        branches = [
            self.branch1x1(h),
            self.branch3x3_2a(by_one),
            self.branch3x3_2b(by_one),
            self.branch3x3dbl_3a(by_two),
            self.branch3x3dbl_3b(by_two),
        ]
        return torch.cat([*branches, self.branch_pool(self.pool(h))], 1)
