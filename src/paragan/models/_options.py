"""Settings that several models share. Read with a config, so this file does not import torch."""

from dataclasses import dataclass
from typing import Literal

from paragan.core.option_types import Count, Natural

WeightInit = Literal["torch", "normal_0.02", "orthogonal", "glorot"]
Sides = Count | tuple[Count, ...] | None
Places = Sides | dict[Literal["g", "d"], Sides]
Attention = Literal["default"] | Places


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Use of labels."""

    conditional: bool | None = True
    """Whether both networks use labels: true, false, or null (if the data has labels)."""


@dataclass(frozen=True, kw_only=True)
class BigGANOptions(NetworkOptions):
    """Sizes of BigGAN, which ContraGAN and ReACGAN share."""

    latent: Count | None = None
    """Length of z; null: 20 for each block of G and for its first layer."""
    width: Count = 96
    """Base number of channels; every layer has a multiple of it."""
    shared: Natural = 128
    """Length of the class embedding shared by G's norms; 0: gains and biases per class and norm.

    With 0, all of z enters the first layer.
    """


@dataclass(frozen=True, kw_only=True)
class ContrastOptions(BigGANOptions):
    """Settings of BigGAN, and the space of D's embeddings."""

    shared: Count = 128
    """Length of the class embedding shared by G's norms."""
    embed: Count | None = None
    """Dimensions of D's embeddings; null: 512 up to 32 px, 768 at 64 px, else 1536."""
    conditional: bool | None = True
    """Whether both networks use labels: true, false, or null (if the data has labels).

    Without labels the model is BigGAN without classes, and D returns no embeddings.
    """
