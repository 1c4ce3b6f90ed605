"""Range, bands, pages and kinds of the images of a data set, and warnings about a range that hardly fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from paragan.datasets import _image_decoding
from paragan.datasets._image_values import StoredValues, top_of
from paragan.datasets._tiff_bands import Values

Limits = tuple[float, float] | None


def describe_range(low: float, high: float, top: float) -> tuple[str, ...]:
    """Return a warning for values outside of their range, 0 to `top`, or in a small part of it: an eighth or a quarter.

    top: infinite if none is known, which warns of all values but equal ones.
    """
    is_inside = low >= 0 and high <= top
    min_width = top / (8 if top < _image_decoding.TOP_OF_16_BITS else 4)  # files of 16 bits often hold 10 to 14
    is_nearly_even = 0 < high - low < min_width
    if is_inside and not is_nearly_even:
        return ()
    if top == math.inf:
        text = "not known"
    else:
        used = f"{(high - low) / top:.1%} of it, so images are nearly even" if is_inside else "not within it"
        text = f"0 to {top:g}: {used}"
    return (f"values are from {low:g} to {high:g}, and the range is {text}; pass data.range=[{low:g},{high:g}]",)


def share_outside(values: Values, limits: Limits) -> float:
    """Return the share of values outside of `limits`, from 0 to 1; 0 without limits."""
    return 0.0 if limits is None else float(np.mean((values < limits[0]) | (values > limits[1])))


def describe_limits(limits: Limits, share: float, low: float, high: float, top: float) -> tuple[str, ...]:
    """Return a warning where limits cut half of the values or keep under a 64th of the range; else `describe_range`."""
    if limits is None:
        return describe_range(low, high, top)
    if share <= 1 / 2 and limits[1] - limits[0] >= (high - low) / 64:
        return ()
    fix = f"pass data.range=[{low:g},{high:g}]" if describe_range(low, high, top) else "leave data.range out"
    cut = f"{share:.0%} of the values lie outside of data.range=[{limits[0]:g},{limits[1]:g}]"
    return (f"{cut} and become black or white; they are from {low:g} to {high:g}: {fix}",)


class ValueSummary:
    """Range, bands, pages and kinds of the images of a data set. limits: the range that is set."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sum_outside = 0.0  # of the share of each image
        self.ranges: dict[str, tuple[float, float]] = {}  # by depth, such as `8-bit`
        self.top = 255.0
        self.max_bands = 0
        self.num_with_more = 0
        self.kinds: Counter[str] = Counter()

    def add(self, stored: StoredValues) -> None:
        low, high = float(stored.colours_HWC.min()), float(stored.colours_HWC.max())
        depth = f"{8 * stored.values_HWC.dtype.itemsize}-bit"
        before = self.ranges.get(depth, (low, high))
        self.ranges[depth] = (min(low, before[0]), max(high, before[1]))
        dtype = stored.values_HWC.dtype
        self.top = max(self.top, top_of(stored.values_HWC) if dtype in (np.uint8, np.uint16) else math.inf)
        self.max_bands = max(self.max_bands, stored.colours_HWC.shape[2])
        self.num_with_more += stored.has_more
        self.kinds[stored.kind] += 1
        self._sum_outside += share_outside(stored.colours_HWC, self._limits)

    @property
    def extent(self) -> tuple[float, float]:
        lows, highs = zip(*self.ranges.values(), strict=True)
        return min(lows), max(highs)

    @property
    def better_range(self) -> tuple[float, float] | None:
        """Lowest and highest value where the default range does not fit them."""
        return self.extent if self.ranges and describe_range(*self.extent, self.top) else None

    def warnings(self, channels: int = 3) -> Iterator[str]:
        """Yield a line for a range that hardly fits, for further pages, and for bands that are not read."""
        if self.ranges:
            yield from describe_limits(self._limits, self._sum_outside / self.kinds.total(), *self.extent, self.top)
        if self.num_with_more:
            yield f"{self.num_with_more:,} of {self.kinds.total():,} images examined have several pages: one is read"
        num_read = 3 if channels == 1 else channels  # grey is mixed from red, green and blue
        if self.max_bands > num_read:
            fix = f"data.channels={self.max_bands} trains on all"
            yield f"images have {self.max_bands} bands, of which the first are read; {fix}"
