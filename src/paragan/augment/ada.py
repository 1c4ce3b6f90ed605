"""Adaptive discriminator augmentation (ADA, Karras et al. 2020): transforms with probability p.

All inputs of D are augmented, and p follows D's logits of real images ("Training Generative
Adversarial Networks with Limited Data", sections 2 and 3, appendix B). Groups, with the paper's
strengths; every transform is drawn for each image separately:
  b    pixel blitting: mirror, quarter turns (half if not square), shift by whole pixels; exact
  g    geometry: scale, rotation, stretch, rotation, shift; composed with b, the image is read once
  c    colour: brightness, contrast, inverted luma, hue, saturation; of grey images the first three
  f    four bands of frequencies, amplified or damped
  n    noise
  c    cutout
Differences from the paper: a symmetric Butterworth half-band instead of the wavelet sym6 (both are
orthogonal with six vanishing moments; this one does not shift, and is a formula), Butterworth bands
instead of sym2, mirrored borders on either side of the map instead of a margin.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paragan.augment._corruption import add_noise, cut_hole, scale_bands
from paragan.augment._draws import Draws, per_image
from paragan.augment._geometry import blit, move
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, Fraction, Positive
from paragan.core.types import Rows
from paragan.core.weight_schedule import WeightSchedule, weight_at
from paragan.layers.precision import at_least_float32, autocast_off

_COLOUR_CHANGES = ("brightness", "contrast", "luma", "hue", "saturation")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Transforms of ADA, and how their probability p moves."""

    pipeline: Literal["b", "bg", "bgc", "bgcf", "bgcfn", "bgcfnc"] = "bgc"
    """Groups of transforms, by the paper's letters."""
    target: Fraction | None = 0.6
    """Mean sign of D's logits on real images above which p rises.

    For losses whose boundary is 0; null: p is constant, or fades to `final`.
    """
    p: Fraction = 0.0
    """Probability of the transforms at the start."""
    final: Fraction | None = None
    """Probability after the first `final_kimg`, reached by a cosine fade; needs `target: null`."""
    final_kimg: Positive = 20_000.0
    """Length of the fade in thousands of real images."""
    kimg: Positive = 500.0
    """Thousands of real images in which p can go from 0 to 1."""
    interval: Count = 4
    """Steps between two adjustments of p."""

    def __post_init__(self) -> None:
        if self.final is not None and self.target is not None:
            raise ValueError(f"final={self.final:g} has no effect while p follows the target; set target=null")


class Augment:
    """ADA of images; draws depend on (seed, stream, row) alone, so ranks and micro-batches agree.

    state: p, and since it was last due to change the number of `steps`, of `images`, and the sum of `signs` of D's
    logits on these; empty if p is fixed.
    """

    name = "ada"

    def __init__(self, options: Options) -> None:
        self.options = options
        groups = (move, change_colours, scale_bands, add_noise, cut_hole)  # `move` is b and g in one
        self._groups = (blit,) if options.pipeline == "b" else groups[: len(options.pipeline) - 1]
        start = {"p": options.p, "steps": 0.0, "images": 0.0, "signs": 0.0}
        state = {name: torch.tensor(value) for name, value in start.items()}
        self.state = {} if options.target is None else state
        self._p: float | WeightSchedule = options.p
        if options.final is not None:
            self._p = WeightSchedule(
                start=options.p, final=options.final, from_kimg=0.0, to_kimg=options.final_kimg, shape="cosine"
            )

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        if x_BCHW.dim() != 4:
            raise ConfigError(
                f"augment needs images, but samples have shape {tuple(x_BCHW.shape[1:])}; leave augment out"
            )
        x = at_least_float32(x_BCHW)
        p = self.state.get("p", weight_at(self._p, rows))
        draws = Draws(seed=seed, stream=stream, rows=rows, like_BCHW=x, p=p)
        with autocast_off(x):
            for group in self._groups:
                x = group(x, draws)
        return x.to(x_BCHW.dtype)

    @torch.no_grad()
    def observe(
        self, signs: Tensor | None, images: int, sum_over_ranks: Callable[[Tensor], Tensor]
    ) -> Mapping[str, Tensor]:
        """Count a step (`Adaptive.observe`); when due, move p by the images' share of `kimg`. Changes `state` in place.

        Without a host sync, so by products with conditions. Steps with logits that are not finite do not count.
        """
        assert self.options.target is not None
        steps, counted_images, sign_sum, p = (self.state[name] for name in ("steps", "images", "signs", "p"))
        values = {"p": p.clone()}
        if signs is None:
            return values
        # the sum of the signs of all images is a whole number: rounded, it is equal for any number of ranks
        step_sum = sum_over_ranks(signs.float() * images).round()
        is_finite = step_sum.isfinite()
        steps += is_finite
        counted_images += is_finite * images
        sign_sum += step_sum.nan_to_num(0.0, 0.0, 0.0)
        due = steps >= self.options.interval
        direction = (sign_sum - self.options.target * counted_images).sign()
        change = direction * counted_images / (self.options.kimg * 1000)
        p.copy_(torch.where(due, (p + change).clamp(0.0, 1.0), p))
        for value in (steps, counted_images, sign_sum):
            value *= ~due
        return values


def change_colours(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Apply one random affine map to the colours of each image.

    Grey is the mean of the channels, colour the difference from it. Brightness and contrast change both, the luma flip
    grey alone, saturation and hue colour alone. One channel has only the first three, and hue needs three channels.
    """
    happens = {name: draws.happens(name) for name in _COLOUR_CHANGES}
    brightness = torch.where(happens["brightness"], draws["brightness"], 0.0)
    contrast = torch.where(happens["contrast"], draws["contrast"], 1.0)
    saturation = torch.where(happens["saturation"], draws["saturation"], 1.0)
    grey = torch.where(happens["luma"] & (draws["luma"] < 0.5), -contrast, contrast)
    cos = torch.where(happens["hue"], draws["hue cos"], 1.0)
    sin = torch.where(happens["hue"], draws["hue sin"], 0.0)
    values = (grey, contrast * saturation, cos, sin)
    map_BCC = _colour_map(x_BCHW, *(value[:, None, None] for value in values))
    out = (map_BCC @ x_BCHW.flatten(2)).view_as(x_BCHW) + per_image(grey * brightness)
    return torch.where(per_image(torch.stack(list(happens.values())).any(0)), out, x_BCHW)


def _colour_map(x_BCHW: Tensor, grey: Tensor, colour: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the colour map (B, C, C): scales grey; scales colour and turns it around (1, 1, 1)."""
    channels = x_BCHW.shape[1]
    same = torch.eye(channels, dtype=x_BCHW.dtype, device=x_BCHW.device)
    mean = torch.full_like(same, 1 / channels)
    turned = same - mean
    if channels == 3:
        # the cross product with (1, 1, 1) / sqrt(3)
        across = (same.roll(1, 0) - same.roll(-1, 0)) / 3**0.5
        turned = cos * turned + sin * across
    return grey * mean + colour * turned
