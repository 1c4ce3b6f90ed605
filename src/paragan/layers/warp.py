"""Affine maps of images, one per image, differentiable any number of times in the images.

Beyond its border an image is mirrored at the border. A map is given by its inverse, inverse_B23:
the output at (x, y) is read at inverse @ (x, y, 1), in pixels from the middle of the image, x to
the right and y down. Uses only gathers and matrix products: `grid_sample` has no second derivative.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

_ORDER = 6  # zeros of the low-pass at its Nyquist frequency


def warp(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """Warp images of any size with anti-aliasing: at twice the resolution, then halved.

    The low-pass filter on either side is orthogonal, so the identity map changes nothing.
    """
    height, width = x_BCHW.shape[2:]
    up_H, up_W = (_upsampling_matrix(side, x_BCHW.dtype, x_BCHW.device) for side in (height, width))
    fine = up_H @ x_BCHW @ up_W.mT
    fine = warp_bilinear(fine, torch.cat([inverse_B23[..., :2], 2 * inverse_B23[..., 2:]], 2))
    return up_H.mT @ fine @ up_W / 4


def warp_bilinear(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """Warp images by bilinear interpolation."""
    columns, rows = _source_pixels(x_BCHW, inverse_B23)
    height, width = x_BCHW.shape[2:]
    out = x_BCHW.new_zeros(())
    for row, down in _neighbours(rows, height):
        for column, along in _neighbours(columns, width):
            out = torch.addcmul(out, _pixels(x_BCHW, row, column), (down * along)[:, None])
    return out


def warp_nearest(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """Warp images by the nearest pixel: exact for mirrors, quarter turns and whole shifts."""
    height, width = x_BCHW.shape[2:]
    columns, rows = _source_pixels(x_BCHW, inverse_B23)
    rows = rows.round_().clamp_(0, height - 1).long()
    columns = columns.round_().clamp_(0, width - 1).long()
    return _pixels(x_BCHW, rows, columns)


def _pixels(x_BCHW: Tensor, rows_BHW: Tensor, columns_BHW: Tensor) -> Tensor:
    """Return the pixels at these rows and columns, x_BCHW."""
    flat = x_BCHW.flatten(2)
    index = (rows_BHW * x_BCHW.shape[3] + columns_BHW).flatten(1)
    return flat.gather(2, index[:, None].expand_as(flat)).view_as(x_BCHW)


@cache
def cosine_basis(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the orthonormal cosine transform of a signal mirrored at its ends, (length, length).

    Row k has the frequency k pi / length per pixel.
    """
    return torch.from_numpy(_cosine_basis(length)).to(device, dtype)


def _source_pixels(x_BCHW: Tensor, inverse_B23: Tensor) -> tuple[Tensor, Tensor]:
    """Return source column and row of each output pixel, (B, H, W) each, mirrored at the border."""
    height, width = x_BCHW.shape[2:]
    x, y = (
        torch.arange((1 - side) / 2, (1 + side) / 2, device=x_BCHW.device, dtype=inverse_B23.dtype)
        for side in (width, height)
    )
    per_x, per_y, shift = inverse_B23[..., None, None].unbind(2)  # (B, 2, 1, 1)
    columns, rows = ((per_y * y[:, None] + shift) + per_x * x).unbind(1)
    return _reflect(columns, width), _reflect(rows, height)


def _reflect(from_middle: Tensor, length: int) -> Tensor:
    """Mirror positions into the image and count them from the first pixel; in place."""
    from_border = from_middle.add_(length / 2)
    # mirroring has the period 2 * length
    around = from_border.div(2 * length).floor_().mul_(2 * length)
    return from_border.sub_(around).sub_(length).abs_().neg_().add_(length - 0.5)


def _neighbours(places: Tensor, length: int) -> list[tuple[Tensor, Tensor]]:
    """Return (index, weight) of the pixel before and of the pixel after each position."""
    before = places.floor()
    share = places - before
    first = before.long()
    return [(first.clamp(min=0), 1 - share), ((first + 1).clamp_(max=length - 1), share)]


@cache
def _upsampling_matrix(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix (2 length, length) that doubles the resolution; its transpose halves it.

    Filter: |H(w)|^2 = cos^2k(w/2) / (cos^2k(w/2) + sin^2k(w/2)), k = 6, the squared Butterworth half-band: maximally
    flat, symmetric, and orthogonal to itself shifted by two. In the cosine basis a coarse wave becomes a fine one
    minus its alias, each scaled by the filter's response. The transpose needs a factor of 1/2.
    """
    angle = np.pi * np.arange(2 * length) / (4 * length)
    low = np.cos(angle) ** (2 * _ORDER)
    high = np.sin(angle) ** (2 * _ORDER)
    waves = np.sqrt(low / (low + high))[:, None] * _cosine_basis(2 * length)
    fine = waves[:length].copy()
    fine[1:] -= waves[:length:-1]  # minus: between two fine pixels an alias has the opposite sign of its wave
    return torch.from_numpy(2**0.5 * fine.T @ _cosine_basis(length)).to(device, dtype)


def _cosine_basis(length: int) -> np.ndarray:
    at = np.outer(np.arange(length), np.arange(length) + 0.5)
    basis = np.cos(np.pi / length * at) * (2 / length) ** 0.5
    basis[0] = length**-0.5
    return basis


def clear_cached_matrices() -> None:
    """Forget the matrices of earlier calls, which may be tensors without data."""
    cosine_basis.cache_clear()
    _upsampling_matrix.cache_clear()
