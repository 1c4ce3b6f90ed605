"""Small network of the packaged extractors, trained by `benchmarks/train_extractors.py`."""

from __future__ import annotations

from torch import Tensor, nn

NUM_FEATURES = 64


class ResidualCnn(nn.Module):
    """Residual network with 64 features >= 0, the mean of the last map, and logits of the classes.

    Input (B, channels, H, W) in [-1, 1]. widths: channels of the maps at 1/2 (two convolutions),
    1/4 and 1/8 of the resolution. Source of the block: K. He et al., "Deep residual learning for
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
            *_conv(eighth, NUM_FEATURES, size=1, padding=0),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.logits = nn.Linear(NUM_FEATURES, num_classes)

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
