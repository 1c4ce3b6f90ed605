"""A network on inputs of any size: padded to a multiple, and in overlapping tiles where they are large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

Call = Callable[[Tensor], Tensor]
Progress = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Division of large inputs. Sizes are those of the input, per axis.

    max_elements: largest input, height x width or samples, that is passed whole. tile: side of a tile with its
    overlap, at least twice as large. overlap: of neighbouring tiles; both are rounded up to a multiple. multiple,
    minimum: of every size that the network takes. scale: size of the output divided by that of the input. is_signal:
    pad with silence, not with the values at the edge. progress: receives the share of the tiles that are done.
    """

    max_elements: int
    tile: int
    overlap: int
    multiple: int
    minimum: int
    scale: Fraction
    is_signal: bool = False
    progress: Progress = lambda share: None


def call_in_tiles(call: Call, x: Tensor, tiling: Tiling) -> Tensor:
    """Return the output of `call` for x (B, C, *sizes), of the sizes times `scale`, rounded down.

    The outputs of tiles equal that of the whole input if none depends on inputs further away than a quarter of the
    overlap; the two tiles of an overlap are blended in the half of it that both know.
    """
    sizes = x.shape[2:]
    padded = pad_to_multiple(x, tiling.multiple, tiling.minimum, tiling.is_signal)
    is_small = prod(padded.shape[2:]) <= tiling.max_elements
    y = call(padded) if is_small else _blended(call, padded, tiling)
    return cut(y, [slice(int(size * tiling.scale)) for size in sizes])


def cut(x: Tensor, windows: Sequence[slice]) -> Tensor:
    """Return the view of a window of the last axes."""
    for axis, window in enumerate(windows, start=x.dim() - len(windows)):
        x = x[(slice(None),) * axis + (window,)]
    return x


def pad_to_multiple(x: Tensor, multiple: int, minimum: int, is_signal: bool) -> Tensor:
    """Return x, padded at the end of each axis to a multiple: a signal by silence, images by their last values."""
    missing = [max(-(-size // multiple) * multiple, minimum) - size for size in x.shape[2:]]
    if not any(missing):
        return x
    pads = [pad for side in reversed(missing) for pad in (0, side)]
    return F.pad(x, pads) if is_signal else F.pad(x, pads, mode="replicate")


def _blended(call: Call, x: Tensor, tiling: Tiling) -> Tensor:
    """Return the outputs of overlapping tiles, as their weighted mean where several cover a place."""
    sizes = x.shape[2:]
    overlap = -(-tiling.overlap // tiling.multiple) * tiling.multiple
    tile = max(-(-tiling.tile // tiling.multiple) * tiling.multiple, 2 * overlap, tiling.minimum)
    total = weights = torch.zeros(())  # until the first output shows its channels and type
    tiles = list(product(*(_windows(size, tile, overlap) for size in sizes)))
    for done, windows in enumerate(tiles, start=1):
        y = call(cut(x, windows))
        if not total.dim():
            total = y.new_zeros(*y.shape[:2], *(int(size * tiling.scale) for size in sizes))
            weights = torch.zeros_like(total[0, 0])
        places = [slice(int(window.start * tiling.scale), int(window.stop * tiling.scale)) for window in windows]
        weight = _weight(places, weights.shape, int(overlap * tiling.scale)).to(y)
        cut(total, places).add_(y * weight)
        cut(weights, places).add_(weight)
        tiling.progress(done / len(tiles))
    # the last tile may overlap more than the others: there weights do not add up to 1; in place: it may take gigabytes
    return total.div_(weights)


def _windows(size: int, tile: int, overlap: int) -> list[slice]:
    """Return windows of one axis that overlap; the last one ends where the axis does."""
    starts = [*range(0, max(0, size - tile), tile - overlap), max(0, size - tile)]
    return [slice(start, min(start + tile, size)) for start in starts]


def _weight(windows: Sequence[slice], sizes: Sequence[int], overlap: int) -> Tensor:
    """Return the weights of a tile's outputs: 0 in the outer quarter of an overlap, and a ramp to 1 in its middle half.

    Outputs near the edge of a tile would have read what is beyond it. At the edge of the input there is nothing. The
    two weights of an overlap add up to 1.
    """
    half_overlap = max(0.5, overlap / 2)  # without an overlap the ramp is 1 everywhere
    weight = torch.ones(())
    for window, size in zip(windows, sizes, strict=True):
        ramp = (torch.arange(window.stop - window.start) + 0.5 - overlap / 4) / half_overlap
        ramp = ramp.clamp(0, 1)
        left = ramp if window.start else torch.ones_like(ramp)
        right = ramp.flip(0) if window.stop < size else torch.ones_like(ramp)
        weight = weight[..., None] * left * right
    return weight
