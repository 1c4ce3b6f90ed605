"""Page of `paragan serve` with images of a generator of latents.

`images?seed=0&num=16&class=3&truncation=0.7&walk=0.5` is a sheet as PNG: each latent is at `walk`, 0
to 1, on the great circle from that of `seed` to that of the next seed.
"""

import io
import math

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.export.sampler import Sampler
from paragan.game.latents import slerp
from paragan.report.rendering import served_page
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image

MAX_IMAGES = 64
_TILE_PX = 64  # images below are enlarged
_MAX_SEED = 2**53 - 1  # the largest integer of JavaScript


class SamplePage:
    """Page with controls of latents and classes.

    `SampleServer` passes content and deadline of a request to every page; `FilePage` uses them.
    """

    request = "GET images"  # that the page sends
    media_type = "image/png"
    names = ("seed", "num", "class", "truncation", "walk")  # of values in its query

    def __init__(self, sampler: Sampler, title: str) -> None:
        self._sampler = sampler
        view = {"title": title, "classes": sampler.class_names, "seed": sampler.seed, "most": MAX_IMAGES}
        self.html, self.policy = served_page("sampler", view)

    def answer(self, values: dict[str, str], content: bytes, deadline: float) -> bytes:
        """Return a sheet of images as PNG. Raises `ConfigError` for invalid values of a query."""
        num = _number(values, "num", 16, 1, MAX_IMAGES)
        seed = _number(values, "seed", self._sampler.seed, 0, _MAX_SEED)
        walk = _fraction(values, "walk") or 0.0
        truncation = _fraction(values, "truncation")
        z_BZ = self._sampler.latents(num, seed, truncation)
        if walk:
            z_BZ = self._between(z_BZ, self._sampler.latents(num, seed + 1, truncation), walk)
        y_B = self._sampler.labels(num, [values["class"]] if "class" in values else None, seed, "class")
        images = self._sampler.generate(z_BZ, y_B, seed=seed, truncation=truncation)
        file = io.BytesIO()
        to_pil_image(make_sheet(images.tensor, math.ceil(math.sqrt(num)), _TILE_PX)).save(file, "PNG")
        return file.getvalue()

    def _between(self, start_BZ: Tensor, end_BZ: Tensor, walk: float) -> Tensor:
        """Return latents between two."""
        z_BZ = slerp(start_BZ, end_BZ, walk)
        # the last component of a mixture's latent selects the member: a value in between could select a third
        nearer_BZ = end_BZ if walk >= 0.5 else start_BZ
        z_BZ[:, self._sampler.num_free :] = nearer_BZ[:, self._sampler.num_free :]
        return z_BZ


def _number(values: dict[str, str], name: str, default: int, min_value: int, max_value: int) -> int:
    if name not in values:
        return default
    text = values[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and min_value <= int(text) <= max_value):
        raise ConfigError(f"{name} is invalid; pass an integer from {min_value} to {max_value}")
    return int(text)


def _fraction(values: dict[str, str], name: str) -> float | None:
    """Return a number from 0 to 1; None if there is none of this name."""
    if name not in values:
        return None
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} is invalid; pass a number from 0 to 1")
    return value
