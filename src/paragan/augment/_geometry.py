"""Geometric transforms, in this order: flip, quarter turns, shift by whole pixels, scale, rotation, stretch, second
rotation, shift.

The moves are composed into one map from the output back to the image, which is read once.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.augment._draws import Draws, per_image
from paragan.layers.warp import warp, warp_nearest

_SHIFT = 1 / 8  # largest shift by whole pixels, of a side


def blit(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Move whole pixels, without interpolation (pixel blitting)."""
    return warp_nearest(x_BCHW, pixel_moves(x_BCHW, draws))


def move(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Apply pixel blitting, then general geometry; images that draw no interpolation stay exact."""
    pixels_B23 = pixel_moves(x_BCHW, draws)
    is_interpolated_B, inverse_B23 = geometric_moves(x_BCHW, draws, pixels_B23)
    warped = warp(x_BCHW, inverse_B23)
    return torch.where(per_image(is_interpolated_B), warped, warp_nearest(x_BCHW, pixels_B23))


def pixel_moves(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Return inverse_B23 of pixel blitting. Images that are not square get half turns only."""
    height, width = x_BCHW.shape[2:]
    flips = draws.happens("flip") & (draws["flip"] < 0.5)
    turns = torch.where(draws.happens("turn"), (4 * draws["turn"]).floor(), 0.0)
    if height != width:
        turns = turns * (turns.remainder(2) == 0)
    shifts = draws.happens("shift")
    x, y = (
        torch.where(shifts, ((2 * draws[name] - 1) * _SHIFT * side).round(), 0.0)
        for name, side in (("shift_x", width), ("shift_y", height))
    )
    one = torch.ones_like(x)
    inverse = _scaling(torch.where(flips, -one, one), one)
    inverse = _then(inverse, _quarter_turning(turns))
    return _then(inverse, _shifting(x, y))


def geometric_moves(x_BCHW: Tensor, draws: Draws, inverse_B23: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether general transforms apply (B,), and their inverse_B23 after the given one."""
    scales, stretches, moves = (draws.happens(name) for name in ("scale", "stretch", "move"))
    scale = torch.where(scales, draws["scale"], 1.0)
    stretch = torch.where(stretches, draws["stretch"], 1.0)
    height, width = x_BCHW.shape[2:]
    x, y = (torch.where(moves, draws[name] * side, 0.0) for name, side in (("move_x", width), ("move_y", height)))
    for step in (
        _scaling(scale, scale),
        _rotating("rotation", draws),
        _scaling(stretch, 1 / stretch),
        _rotating("second_rotation", draws),
        _shifting(x, y),
    ):
        inverse_B23 = _then(inverse_B23, step)
    rotates = draws.rotates("rotation") | draws.rotates("second_rotation")
    return scales | stretches | moves | rotates, inverse_B23


def _then(inverse_B23: Tensor, step_B23: Tensor) -> Tensor:
    """Return the inverse of a further step after those so far.

    Sums without matmul, so that an image's result does not depend on the other images.
    """
    linear = inverse_B23[..., :2]
    shift = inverse_B23[..., 2:]
    return (linear[..., None] * step_B23[:, None]).sum(2) + F.pad(shift, (2, 0))


def _scaling(along_x: Tensor, along_y: Tensor) -> Tensor:
    zero = torch.zeros_like(along_x)
    return _matrices_B23(1 / along_x, zero, zero, zero, 1 / along_y, zero)


def _rotating(name: str, draws: Draws) -> Tensor:
    happens = draws.rotates(name)
    cos = torch.where(happens, draws[f"{name} cos"], 1.0)
    return _turning(cos, torch.where(happens, draws[f"{name} sin"], 0.0))


def _quarter_turning(turns: Tensor) -> Tensor:
    """Return the matrices of 0 to 3 quarter turns, whose cos is 1, 0, -1, 0 and sin 0, 1, 0, -1."""
    return _turning((turns - 2).abs() - 1, 1 - (turns - 1).abs())


def _turning(cos: Tensor, sin: Tensor) -> Tensor:
    zero = torch.zeros_like(cos)
    return _matrices_B23(cos, sin, zero, -sin, cos, zero)


def _shifting(x: Tensor, y: Tensor) -> Tensor:
    zero = torch.zeros_like(x)
    one = torch.ones_like(x)
    return _matrices_B23(one, zero, -x, zero, one, -y)


def _matrices_B23(*entries: Tensor) -> Tensor:
    return torch.stack(entries, 1).unflatten(1, (2, 3))
