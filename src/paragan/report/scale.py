"""Axis scales, linear or logarithmic, with round ticks, and the formatting of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

_MIN_LOG_DECADES = 1.7  # positive values that span more get a logarithmic scale
_MAX_VALUE = 1e250  # so that differences and their powers of ten are finite and non-zero
_MIN_SPAN = 1e-290
_NUM_TICKS = 4  # about
_MARGIN = 0.08  # above and below, as a share of the range
_OUTLIER_RATIO = 40.0  # a range this many times the central one is clipped


@dataclass(frozen=True)
class Scale:
    """Axis from low to high, low < high; log: logarithmic, both above 0."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, clamped to 0..1."""
        clamped = min(max(value, self.low), self.high)
        low, high, place = (math.log10(v) if self.log else v for v in (self.low, self.high, clamped))
        return (place - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return about four round values within the scale."""
        return (_log_ticks if self.log else _round_ticks)(self.low, self.high)


def fit_scale(values: Sequence[float], floor: float | None = None) -> Scale:
    """Fit a scale to finite values: logarithmic if they span decades, unless `floor` is given.

    Outliers are clipped, so that they do not flatten the other values.
    """
    if not values:
        return Scale(0.0, 1.0)
    ordered = sorted(min(max(v, -_MAX_VALUE), _MAX_VALUE) for v in values)
    may_be_log = floor is None and ordered[0] > 0
    decades = math.log10(ordered[-1]) - math.log10(ordered[0]) if may_be_log else 0.0
    if decades > _MIN_LOG_DECADES:
        factor = 10 ** (_MARGIN * decades)
        return Scale(ordered[0] / factor or ordered[0], ordered[-1] * factor, True)
    low, high = _usual_range(ordered)
    if floor is not None:
        low = min(low, floor)
    flat_margin = max(0.1 * abs(high), _MIN_SPAN) if high else 1.0
    margin = _MARGIN * (high - low) if high - low > _MIN_SPAN else flat_margin
    return Scale(low if low == floor else low - margin, high + margin)


def format_number(value: float) -> str:
    """Format a number for display with four significant digits."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "not a number")
    size = abs(value)
    if value and not 1e-3 <= size < 1e6:
        digits, power = f"{value:.2e}".split("e")
        text = f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    else:
        text = f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")


def format_short(value: float) -> str:
    """Format a number with three significant digits, for small spaces."""
    if not math.isfinite(value) or 1000 <= abs(value) < 1e5:
        return format_number(value).replace(",", "")
    return format_number(float(f"{value:.2e}"))


def _usual_range(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the range of sorted values; of values with outliers, that of the central nine tenths and as much again."""
    inner = ordered[len(ordered) // 20 : len(ordered) - len(ordered) // 20]
    low = inner[0]
    high = inner[-1]
    span = high - low
    if span and ordered[-1] - ordered[0] > _OUTLIER_RATIO * span:
        return max(ordered[0], low - span), min(ordered[-1], high + span)
    return ordered[0], ordered[-1]


def _round_ticks(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, of which about `_NUM_TICKS` fit."""
    rough = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n for n in (power, 2 * power, 5 * power, 10 * power) if n >= rough * 0.7)
    first = math.ceil(low / step - 1e-9)  # a tick on the edge counts, whatever the rounding
    last = math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, every n-th of many; where fewer than two fit, also 2 and 5 times them."""
    first = math.ceil(math.log10(low))
    last = math.floor(math.log10(high))
    stride = max(1, math.ceil((last - first + 1) / _NUM_TICKS))
    powers = [10.0**n for n in range(first, last + 1, stride)]
    if len(powers) > 1:
        return powers
    between = [d * 10.0**n for n, d in product(range(first - 1, last + 1), (1, 2, 5))]
    return [value for value in between if low <= value <= high] or powers
