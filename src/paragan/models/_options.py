"""Settings that several models share. Read with a config, so this file does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.option_types import Count, Natural

WeightInit = Literal["torch", "normal_0.02", "orthogonal", "glorot"]
Sides = Count | tuple[Count, ...] | None
Places = Sides | dict[Literal["g", "d"], Sides]
Attention = Literal["default"] | Places
Widths = tuple[Count, ...] | None


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Labels and initial weights."""

    conditional: bool | None = True
    """Whether both networks use labels: true, false, or null (if the data has labels)."""
    weight_init: WeightInit = "torch"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


@dataclass(frozen=True, kw_only=True)
class StageOptions(NetworkOptions):
    """Channels of every resolution."""

    g_widths: Widths = None
    """Channels of G's maps, from the smallest up; null: multiples of `width`."""
    d_widths: Widths = None
    """Channels of D's blocks, from the image down; null: multiples of `width`."""


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(StageOptions):
    """Maps with self-attention."""

    attention: Attention = "default"
    """Sides of the maps with self-attention (channels: a multiple of 8); null: none.

    A number or a list for both networks, or `{g: 64, d: [64, 32]}`. `default`: half the image in
    either, 64 at most.
    """


@dataclass(frozen=True, kw_only=True)
class BigGANOptions(AttentionOptions):
    """Sizes and variants of BigGAN, which ContraGAN and ReACGAN share."""

    weight_init: WeightInit = "orthogonal"
    attention: Attention = "default"
    """Sides of the maps with self-attention (channels: a multiple of 8); null: none.

    A number or a list for both networks, or `{g: 64, d: [64, 32]}`. `default`: half the image in
    either, 64 at most, and none up to 32 px in the flavour `brock`.
    """
    latent: Count | None = None
    """Length of z; null: 20 for each block of G and for its first layer."""
    width: Count = 96
    """Base number of channels; every layer has a multiple of it."""
    shared: Natural = 128
    """Length of the class embedding shared by G's norms; 0: gains and biases per class and norm.

    With 0, all of z enters the first layer.
    """
    flavour: Literal["studio", "brock"] = "studio"
    """Variant of the networks: `studio` (published CIFAR and Tiny-ImageNet benchmarks) or `brock`.

    `brock`: the authors' code, with D twice as wide at 32 px, and a wider G at 64 px.
    """


@dataclass(frozen=True, kw_only=True)
class ContrastOptions(BigGANOptions):
    """Settings of BigGAN, and the space of D's embeddings."""

    shared: Count = 128
    embed: Count | None = None
    """Dimensions of D's embeddings; null: 512 up to 32 px, 768 at 64 px, else 1536."""
    conditional: bool | None = True
    """Whether both networks use labels: true, false, or null (if the data has labels).

    Without labels the model is BigGAN without classes, and D returns no embeddings.
    """


@dataclass(frozen=True, kw_only=True)
class UNetOptions(NetworkOptions):
    """Sizes of a U-Net on patches, and of its encoder."""

    width: Count = 32
    """Channels of the largest map."""
    multiples: tuple[Count, ...] = (1, 2)
    """Channels of each map as multiples of `width`, from the largest down; every one is half as large."""
    blocks: Count = 1
    """Residual blocks of each map, on the way down and up."""
    patch: Literal[1, 2, 4] = 2
    """Side of the squares of pixels that are one position of the largest map."""
    embed: Count = 64
    """Length of the embedding of time and class."""
