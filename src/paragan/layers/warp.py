"""Affine maps of images, one per image, differentiable any number of times with respect to the images.

Beyond its border an image goes on as in a mirror that stands on the border itself. A map is given
by its inverse, inverse_B23: what the output shows at (x, y) is found at inverse @ (x, y, 1), in
pixels from the middle of the image, x to the right and y down. Gathers and matrix products alone:
`grid_sample` has no second derivative.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

_ORDER = 6  # zeros of the low-pass at its Nyquist frequency


def warp(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """Read between the pixels of the image at twice its resolution, at twice the output's, then halved.

    The low-pass on either side is orthogonal, so what did not move would come out as it went in.
    Any size.
    """
    height, width = x_BCHW.shape[2:]
    up_H, up_W = (_upsampling_matrix(side, x_BCHW.dtype, x_BCHW.device) for side in (height, width))
    fine = up_H @ x_BCHW @ up_W.mT
    fine = warp_bilinear(fine, torch.cat([inverse_B23[..., :2], 2 * inverse_B23[..., 2:]], 2))
    return up_H.mT @ fine @ up_W / 4


def warp_bilinear(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """From the four pixels around each place."""
    columns, rows = _source_pixels(x_BCHW, inverse_B23)
    flat = x_BCHW.flatten(2)
    width = x_BCHW.shape[3]
    out = flat.new_zeros(())
    for row, down in _neighbours(rows, x_BCHW.shape[2]):
        for column, along in _neighbours(columns, width):
            index = (row * width + column).flatten(1)
            share = (down * along).flatten(1)
            out = torch.addcmul(out, flat.gather(2, index[:, None].expand_as(flat)), share[:, None])
    return out.view_as(x_BCHW)


def warp_nearest(x_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """From the nearest pixel: exact for maps of whole pixels (mirrored, by quarter turns of a square, shifted)."""
    height, width = x_BCHW.shape[2:]
    columns, rows = _source_pixels(x_BCHW, inverse_B23)
    rows = rows.round_().clamp_(0, height - 1).long()
    columns = columns.round_().clamp_(0, width - 1).long()
    flat = x_BCHW.flatten(2)
    index = (rows * width + columns).flatten(1)
    return flat.gather(2, index[:, None].expand_as(flat)).view_as(x_BCHW)


@cache
def cosine_basis(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal cosine transform of a signal that is mirrored at its ends: (length, length), by frequency.

    Row k is of k pi / length per pixel.
    """
    return torch.from_numpy(_cosine_basis(length)).to(device, dtype)


def _source_pixels(x_BCHW: Tensor, inverse_B23: Tensor) -> tuple[Tensor, Tensor]:
    """Where each pixel of the output is found, as column and row, within half a pixel of the image: (B, H, W) each."""
    height, width = x_BCHW.shape[2:]
    x, y = (
        torch.arange((1 - side) / 2, (1 + side) / 2, device=x_BCHW.device, dtype=inverse_B23.dtype)
        for side in (width, height)
    )
    per_x, per_y, shift = inverse_B23[..., None, None].unbind(2)  # (B, 2, 1, 1)
    columns, rows = ((per_y * y[:, None] + shift) + per_x * x).unbind(1)
    return _reflect(columns, width), _reflect(rows, height)


def _reflect(from_middle: Tensor, length: int) -> Tensor:
    """Places beyond the border to where the mirror shows them, counted from the first pixel; in place."""
    from_border = from_middle.add_(length / 2)
    # there and back, all is as before
    around = from_border.div(2 * length).floor_().mul_(2 * length)
    return from_border.sub_(around).sub_(length).abs_().neg_().add_(length - 0.5)


def _neighbours(places: Tensor, length: int) -> list[tuple[Tensor, Tensor]]:
    """The pixels before and after, and how much of each."""
    before = places.floor()
    share = places - before
    first = before.long()
    return [(first.clamp(min=0), 1 - share), ((first + 1).clamp_(max=length - 1), share)]


@cache
def _upsampling_matrix(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Twice the resolution, as a matrix (2 length, length); its transpose by 2 goes back.

    |H(w)|^2 = cos^2k(w/2) / (cos^2k(w/2) + sin^2k(w/2)), k = 6, the squared Butterworth half-band: maximally flat,
    symmetric, and orthogonal to itself shifted by two. In the basis of cosines a coarse wave is a fine one and, as loud
    as the filter lets it through, its alias at the coarse pixels, which has the other sign there.
    """
    angle = np.pi * np.arange(2 * length) / (4 * length)
    low = np.cos(angle) ** (2 * _ORDER)
    high = np.sin(angle) ** (2 * _ORDER)
    waves = np.sqrt(low / (low + high))[:, None] * _cosine_basis(2 * length)
    fine = waves[:length].copy()
    fine[1:] -= waves[:length:-1]
    return torch.from_numpy(2**0.5 * fine.T @ _cosine_basis(length)).to(device, dtype)


def _cosine_basis(length: int) -> np.ndarray:
    at = np.outer(np.arange(length), np.arange(length) + 0.5)
    basis = np.cos(np.pi / length * at) * (2 / length) ** 0.5
    basis[0] = length**-0.5
    return basis
