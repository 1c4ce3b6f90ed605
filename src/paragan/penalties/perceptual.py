"""Distance of generated images and targets in the layers of a frozen network (Johnson et al. 2016, equation 2).

The network is a file of `torch.export`, such as VGG or LPIPS, or the packaged classifier of CIFAR-10,
for 32x32 images a small stand-in for them. A file's outputs are the layers. Features are scaled to length 1 over
channels as in LPIPS (Zhang et al. 2018, equation 1).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import ProgramPath
from paragan.layers.frozen import Frozen
from paragan.layers.image_input import ImageInput
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.perceptual_loss import PerceptualLoss
from paragan.storage.exported_network import ExportedNetwork

_MEAN = (0.485, 0.456, 0.406)  # of ImageNet, as networks trained on it expect; colours in [0, 1]
_STD = (0.229, 0.224, 0.225)
_PACKAGED_LAYERS = (2, 5, 9, 12, 17)  # activations before the narrow last layer


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Network, its layers, and how they are compared. Needs data of pairs, or a model that reconstructs."""

    weights: ProgramPath | None = None
    """File of the network, .pt2, written by `torch.export.save`; null: the packaged `cifar10`.

    Its images are normalised as ImageNet's.
    """
    sha256: str | None = None
    """Required sha256 of the file; null: any."""
    outputs: tuple[str, ...] | None = None
    """Outputs of the file that are compared; null: all."""
    distance: Literal["l1", "l2"] = "l2"
    """Distance of features: `l1`, mean absolute, or `l2`, mean squared difference."""
    normalise: bool = True
    """Scale the features of each position to length 1 first."""


class Penalty(PerceptualLoss):
    """Distance of features per sample, summed over layers. Grey images are repeated for colour networks."""

    needs_images = True
    needs_pairs = True

    def __init__(self, options: Options) -> None:
        network = _packaged() if options.weights is None else _from_file(options, Path(options.weights))
        super().__init__(
            network=Frozen(network),
            distance=options.distance,
            normalize=options.normalise,
            weight=options.weight,
        )

    def features(self, x: Tensor) -> dict[str, Tensor]:
        """Return the compared features of images by layer. Raises `ConfigError` for other than 1 or 3 channels."""
        if x.shape[1] not in (1, 3):
            raise ConfigError(
                f"penalty perceptual needs images of 1 or 3 channels, not samples of {tuple(x.shape[1:])}; leave it out"
            )
        return super().features(x)


class _PackagedLayers(nn.Module):
    """Layers of the packaged network, for images in [-1, 1]."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x_BCHW: Tensor) -> dict[str, Tensor]:
        h = x_BCHW.expand(-1, 3, -1, -1)
        features = {}
        for number, layer in enumerate(self.layers):
            h = layer(h)
            if number in _PACKAGED_LAYERS:
                features[str(number)] = h
        return features


class _FileLayers(nn.Module):
    """Outputs of a file, for images in [-1, 1]."""

    def __init__(self, network: ExportedNetwork, to_input: ImageInput, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.to_input = to_input
        self.names = names

    def forward(self, x_BCHW: Tensor) -> dict[str, Tensor]:
        outputs = self.network(self.to_input(x_BCHW))
        return {name: outputs[name] for name in self.names}


def _packaged() -> nn.Module:
    extractor = registry.load_module("features", "cifar10").EXTRACTOR
    return _PackagedLayers(extractor.network().features[: _PACKAGED_LAYERS[-1] + 1])


def _from_file(options: Options, path: Path) -> nn.Module:
    network = ExportedNetwork(path, options.sha256)
    channels, height, width = network.input_shape
    names = network.output_names if options.outputs is None else options.outputs
    if unknown := [name for name in names if name not in network.output_names]:
        known = ", ".join(network.output_names)
        raise ConfigError(f"penalty perceptual: outputs: {path} has no output {unknown[0]!r}; choose from {known}")
    if channels != 3:
        raise ConfigError(f"penalty perceptual: {path} takes {channels} channels; give a network of colour images")
    size = None if height is None or width is None else (height, width)
    return _FileLayers(network, ImageInput(channels=channels, size=size, mean=_MEAN, std=_STD), names)
