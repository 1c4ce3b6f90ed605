"""Random draws for each image of a batch: whether a transform is applied, and how strongly.

All strengths are those of Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", appendix B.
"""

from collections.abc import Collection
from math import pi

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.types import Rows

_GATES = (
    "flip", "turn", "shift", "scale", "rotation", "stretch", "second_rotation", "move",
    "brightness", "contrast", "luma", "hue", "saturation",
    "band_0", "band_1", "band_2", "band_3", "noise", "hole",
)  # fmt: skip
_UNIFORM = ("flip", "turn", "shift_x", "shift_y", "luma", "hole_x", "hole_y")
_ANGLES = ("rotation", "second_rotation", "hue")  # uniform on the circle, as NAME cos and NAME sin
_FACTORS = {  # log-normal around 1: standard deviation of the power of two
    "scale": 0.2, "stretch": 0.2, "contrast": 0.5, "saturation": 1.0,
    "band_0": 1.0, "band_1": 1.0, "band_2": 1.0, "band_3": 1.0,
}  # fmt: skip
# deviations: moves as shares of a side, the others for images in [-1, 1]
_NORMAL = {"move_x": 1 / 8, "move_y": 1 / 8, "brightness": 0.2, "noise": 0.1}


class Draws:
    """Draws by (seed, stream, row), independent of p, which only decides how many images change.

    like_BCHW: has the device and dtype of the values. They are computed on the host in float64:
    those of an image depend neither on the device nor on the other images.
    """

    def __init__(self, seed: int, stream: str, rows: Rows, like_BCHW: Tensor, p: Tensor | float) -> None:
        self._where = (seed, stream, rows)
        self._like = like_BCHW
        self._p = p
        # One draw for each distribution: columns are in the order of the tables above.
        numbers = rng.uniform(seed, stream, rows, (len(_GATES) + len(_UNIFORM) + len(_ANGLES),))
        gates, uniform, turns = numbers.split([len(_GATES), len(_UNIFORM), len(_ANGLES)], 1)
        deviations = torch.tensor([*_FACTORS.values(), *_NORMAL.values()], dtype=torch.float64)
        normal = rng.normal(seed, f"{stream}/normal", rows, deviations.shape).double() * deviations
        powers, normal = normal.split([len(_FACTORS), len(_NORMAL)], 1)
        angles = (2 * turns.double() - 1) * pi
        values = {
            **_by_name(_UNIFORM, uniform.double()),
            **_by_name([f"{name} cos" for name in _ANGLES], angles.cos()),
            **_by_name([f"{name} sin" for name in _ANGLES], angles.sin()),
            **_by_name(_FACTORS, powers.exp2()),
            **_by_name(_NORMAL, normal),
        }
        columns = torch.stack([*values.values()], 1).to(like_BCHW, non_blocking=True)  # one copy to the device
        self._values = _by_name(values, columns)
        self._gates = _by_name(_GATES, gates.to(like_BCHW.device, non_blocking=True))

    def happens(self, name: str) -> Tensor:
        """Return whether a transform is applied, with probability p: bool (B,)."""
        return self._gates[name] < self._p

    def rotates(self, name: str) -> Tensor:
        """Return whether one of two rotations is applied; at least one is with probability p."""
        return self._gates[name] < 1 - (1 - self._p) ** 0.5

    def __getitem__(self, name: str) -> Tensor:
        """Return (B,): uniform in [0, 1), a factor, a scaled normal, or `NAME cos`, `NAME sin`."""
        return self._values[name]

    def field(self, name: str) -> Tensor:
        """Return standard normal noise, one value per element of the images."""
        seed, stream, rows = self._where
        shape = tuple(self._like.shape[1:])
        return rng.normal(seed, f"{stream}/{name}", rows, shape).to(self._like, non_blocking=True)


def _by_name(names: Collection[str], columns: Tensor) -> dict[str, Tensor]:
    return dict(zip(names, columns.unbind(1), strict=True))


def per_image(values_B: Tensor) -> Tensor:
    """Reshape (B,) to (B, 1, 1, 1), to broadcast with images."""
    return values_B[:, None, None, None]
