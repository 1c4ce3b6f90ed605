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
    """Whether both networks see labels: true, false, or null (if the data has labels)."""
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
    """Where self-attention is."""

    attention: Attention = "default"
    """Sides of the maps that self-attention sees, of a multiple of 8 channels: a number or a list
    for both networks, or `{g: 64, d: [64, 32]}`; null: none; `default`: half the image in either,
    64 at most.
    """


@dataclass(frozen=True, kw_only=True)
class BigGANOptions(AttentionOptions):
    """BigGAN's sizes and variants, which ContraGAN and ReACGAN share."""

    weight_init: WeightInit = "orthogonal"
    attention: Attention = "default"
    """Sides of the maps that self-attention sees, of a multiple of 8 channels: a number or a list
    for both networks, or `{g: 64, d: [64, 32]}`; null: none; `default`: half the image in either,
    64 at most, and none up to 32 px in the flavour `brock`.
    """
    latent: Count | None = None
    """Length of z; null: 20 for every block of G and for its first layer."""
    width: Count = 96
    """Base number of channels; every layer has a multiple of it."""
    shared: Natural = 128
    """Length of the class embedding shared by G's norms; 0: each norm has its own gains and biases
    per class, and all of z enters the first layer.
    """
    flavour: Literal["studio", "brock"] = "studio"
    """`studio`: the networks of published CIFAR and Tiny-ImageNet benchmarks.

    `brock`: the authors' code, with D twice as wide at 32 px, and a wider G at 64 px.
    """


@dataclass(frozen=True, kw_only=True)
class ContrastOptions(BigGANOptions):
    """BigGAN's, and the space in which D compares."""

    shared: Count = 128
    embed: Count | None = None
    """Dimensions of the space in which D compares images; null: 512 up to 32 px, 768 at 64 px, else
    1536."""
    conditional: bool | None = True
    """Whether both networks see labels: true, false, or null (if the data has labels). false leaves
    a BigGAN without classes, where nothing is compared.
    """
