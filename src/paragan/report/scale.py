"""From values to places on a chart: linear or logarithmic, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_DECADES = 1.7  # positive values that span more are shown by their logarithm
_MOST, _LEAST = 1e250, 1e-290  # so that differences and their powers of ten are finite and not zero
_ROOM = 0.08  # above and below, as a share of what is shown
_SPIKE = 40.0  # so many times the usual range is off the scale


@dataclass(frozen=True)
class Scale:
    """A value v lies at height `at(v)`, clamped to top..bottom (pixels, downwards)."""

    low: float
    high: float
    log: bool
    top: float
    bottom: float

    def at(self, value: float) -> float:
        low, high, here = (self._unit(v) for v in (self.low, self.high, min(max(value, self.low), self.high)))
        return self.bottom - (here - low) / (high - low) * (self.bottom - self.top)

    def ticks(self, about: int = 4) -> list[float]:
        """Round values within the scale."""
        return _log_ticks(self.low, self.high, about) if self.log else round_ticks(self.low, self.high, about)

    def _unit(self, value: float) -> float:
        return math.log10(value) if self.log else value


def fit_scale(values: Sequence[float], top: float, bottom: float, floor: float | None = None) -> Scale:
    """A scale for these finite values. With a `floor`, linear from there; else logarithmic if positive over decades.

    A few values far outside the range of the others do not flatten them: they are clamped.
    """
    if not values:
        return Scale(0.0, 1.0, False, top, bottom)
    ordered = sorted(min(max(v, -_MOST), _MOST) for v in values)
    if floor is None and ordered[0] > 0 and math.log10(ordered[-1]) - math.log10(ordered[0]) > _DECADES:
        room = 10 ** (_ROOM * (math.log10(ordered[-1]) - math.log10(ordered[0])))
        return Scale(ordered[0] / room or ordered[0], ordered[-1] * room, True, top, bottom)
    low, high = _usual_range(ordered)
    if floor is not None:
        low = min(low, floor)
    margin = _ROOM * (high - low) if high - low > _LEAST else max(0.1 * abs(high), _LEAST) if high else 1.0
    return Scale(low if low == floor else low - margin, high + margin, False, top, bottom)


def round_ticks(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten in [low, high], about so many."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n for n in (power, 2 * power, 5 * power, 10 * power) if n >= rough * 0.7)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def format_number(value: float) -> str:
    """Four significant digits, for people."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if value and not 1e-3 <= size < 1e6:
        digits, power = f"{value:.2e}".split("e")
        text = f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    else:
        text = f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")


def format_short(value: float) -> str:
    """Three significant digits, where there is little room."""
    if not math.isfinite(value) or 1000 <= abs(value) < 1e5:
        return format_number(value).replace(",", "")
    return format_number(float(f"{value:.2e}"))


def _usual_range(ordered: Sequence[float]) -> tuple[float, float]:
    inner = ordered[len(ordered) // 20 : len(ordered) - len(ordered) // 20]
    low, high = inner[0], inner[-1]
    usual = high - low
    if usual and ordered[-1] - ordered[0] > _SPIKE * usual:
        return max(ordered[0], low - usual), min(ordered[-1], high + usual)
    return ordered[0], ordered[-1]


def _log_ticks(low: float, high: float, about: int) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    stride = max(1, math.ceil((last - first + 1) / about))
    found = [10.0**n for n in range(first, last + 1, stride)]
    if len(found) > 1:
        return found
    between = [d * 10.0**n for n in range(first - 1, last + 1) for d in (1, 2, 5)]
    return [value for value in between if low <= value <= high] or found
