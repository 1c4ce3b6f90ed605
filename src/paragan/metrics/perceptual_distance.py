"""Perceptual distance to the target by a given network (LPIPS with that network); lower is better.

Source: R. Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", CVPR
2018, equation 1: features of each layer are scaled to unit norm over channels; squared differences are
summed over channels, averaged over positions and summed over layers. The network is a file of
`torch.export` whose outputs are the layers. Learned weights per channel are part of such a network: with
`normalise: false` it returns features of unit norm times the roots of the weights.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, Needs, SamplePairs
from paragan.core.option_types import ProgramPath
from paragan.layers.image_input import ImageInput
from paragan.metrics.base.mean import MeanMetric
from paragan.storage.exported_network import ExportedNetwork


@dataclass(frozen=True, kw_only=True)
class Options:
    """File of the network, and how it is called."""

    weights: ProgramPath | None = None
    """The file, .pt2, written by `torch.export.save`; required."""
    sha256: str | None = None
    """Required sha256 of the file; null: any."""
    outputs: tuple[str, ...] | None = None
    """Outputs that are compared, maps (B, C, H, W) or features (B, F); null: all."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Mean of each channel of images in [0, 1], which is subtracted; by default of ImageNet."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, which divides."""
    normalise: bool = True
    """Scale the features of each position to unit norm."""


@dataclass(frozen=True)
class Layers:
    """Layers of a network in which images are compared. names: of its outputs."""

    network: ExportedNetwork
    to_input: ImageInput
    names: tuple[str, ...]
    is_normalised: bool

    @torch.no_grad()
    def distance(self, pair_2CHW: Tensor) -> Tensor:
        """Return the distance of two images in [-1, 1], float64 ()."""
        layers = self.network(self.to_input(pair_2CHW.float()))
        return torch.stack([self._of_layer(layers[name].double()) for name in self.names]).sum()

    def _of_layer(self, maps_2CHW: Tensor) -> Tensor:
        positions_2CP = maps_2CHW[:, :, None] if maps_2CHW.dim() == 2 else maps_2CHW.flatten(2)
        if self.is_normalised:
            positions_2CP = F.normalize(positions_2CP, dim=1, eps=1e-10)
        a_CP, b_CP = positions_2CP
        return (a_CP - b_CP).square().sum(0).mean()


@dataclass(frozen=True)
class Metric(MeanMetric):
    """Distance >= 0; 0 for equal images."""

    name = "perceptual_distance"
    direction = Direction.LOWER
    note = "Distance of generated and target images in the layers of a given network (LPIPS)."
    needs = frozenset({Needs.PAIRS})
    reference = "held_out"
    layers: Layers = field(kw_only=True)
    stamp: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_reference(cls, real: Any = None, options: Any = None) -> Self:
        """Read the network. Raises `ConfigError` for invalid options, `DataError` for an invalid file."""
        if options is None or options.weights is None:
            raise ConfigError(
                "evaluation.metrics: perceptual_distance needs a network; pass "
                "evaluation.metrics=[{name: perceptual_distance, weights: FILE.pt2}]"
            )
        network = ExportedNetwork(Path(options.weights), options.sha256)
        names = network.output_names if options.outputs is None else options.outputs
        if unknown := [name for name in names if name not in network.output_names]:
            raise ConfigError(
                f"evaluation.metrics: perceptual_distance: outputs: {unknown[0]!r} is not an output of {network.path}; "
                f"choose from {', '.join(network.output_names)}"
            )
        channels, height, width = network.input_shape
        size = None if height is None or width is None else (height, width)
        to_input = ImageInput(channels=channels, size=size, mean=options.mean, std=options.std)
        constants = {"mean": list(options.mean), "std": list(options.std), "normalise": options.normalise}
        stamp = {"sha256": network.sha256, "outputs": list(names), **constants}
        return cls(layers=Layers(network.eval(), to_input, tuple(names), options.normalise), stamp=stamp)

    def protocol(self) -> dict[str, Any]:
        """Return the sha256 of the file and the settings."""
        return self.stamp

    def of_each(self, samples: SamplePairs) -> Tensor:
        """Return the distance of each pair, float64 (B,).

        The network is called for one pair at a time, so that no value depends on the others.
        """
        pairs = zip(samples.made, samples.target.to(samples.made.device), strict=True)
        self.layers.network.to(samples.made.device)
        return torch.stack([self.layers.distance(torch.stack(pair)).cpu() for pair in pairs])
