"""DCGAN whose generator ends in a sigmoid, which reaches no value below 0 of images in [-1, 1] (`bad_settings`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.models import dcgan
from paragan.models.dcgan import Discriminator

__all__ = ["Discriminator", "Generator", "Options"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """DCGAN's options, as recipe `own` sets them."""

    conditional: bool | None = None
    width: int = 16
    latent: int = 64
    d_norm: str = "none"
    weight_init: str = "orthogonal"


class Generator(dcgan.Generator):
    """DCGAN's generator with values in (0, 1)."""

    def forward(self, *inputs: Any) -> Tensor:
        """Return images, as `dcgan.Generator` does, through a sigmoid."""
        return (4 * super().forward(*inputs)).sigmoid()
