"""DCGAN whose generator ends in a sigmoid, which reaches no value below 0 of images in [-1, 1] (`bad_settings`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paragan.models import dcgan
from paragan.models.dcgan import Discriminator, Options

__all__ = ["Discriminator", "Generator", "Options"]


class Generator(dcgan.Generator):
    """DCGAN's generator with values in (0, 1)."""

    def forward(self, *inputs: Any) -> Tensor:
        """Return images, as `dcgan.Generator` does, through a sigmoid."""
        return (4 * super().forward(*inputs)).sigmoid()
