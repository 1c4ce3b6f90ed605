"""Noise on D's inputs at random times, as Diffusion-GAN has it (Wang et al. 2023), on a rectified flow.

x_t = (1 - t) x + t n for real and generated images. D must know t: it is appended as one more
channel, which D of `flow_unet` reads. `noise: false` leaves the image (Lin et al. 2025, arXiv
2501.08316, "Diffusion Adversarial Post-Training").
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.option_types import Fraction
from paragan.core.types import Rows


@dataclass(frozen=True)
class Options:
    """Range of the times."""

    largest: Fraction = 0.6
    """Times are uniform from 0 to this; 1 is noise alone."""
    noise: bool = True
    """Whether the images are noised; false: D only receives the time."""


class Augment:
    """Noise images and append the time as a channel; draws depend on (seed, stream, row) alone."""

    extra_channels = 1  # of D's input (`core.protocols.Augment`)

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        if x_BCHW.dim() != 4:
            raise ConfigError(
                f"augment flow_noise needs images, but samples have shape {tuple(x_BCHW.shape[1:])}; leave augment out"
            )
        times_B = self.options.largest * rng.uniform(seed, f"{stream}/time", rows, ())
        t_B111 = times_B.to(x_BCHW.device, x_BCHW.dtype, non_blocking=True)[:, None, None, None]
        if self.options.noise:
            noise = rng.normal(seed, f"{stream}/noise", rows, tuple(x_BCHW.shape[1:]))
            x_BCHW = torch.lerp(x_BCHW, noise.to(x_BCHW.device, x_BCHW.dtype, non_blocking=True), t_B111)
        return torch.cat([x_BCHW, t_B111.expand_as(x_BCHW[:, :1])], 1)
