"""The largest batch of a memory limit."""

from __future__ import annotations

from collections.abc import Callable

_MOST = 1 << 20
_GROWTH = 8  # from one guess to the next


def find_largest_batch(peak_bytes: Callable[[int], int], limit_bytes: int, start: int, step: int = 1) -> int:
    """Return the largest multiple of `step` whose peak is within the limit; 0 if none is.

    peak_bytes: of a batch, grows with it. start: a first guess. The next guess is on the line
    through the bounds found so far, so it takes few evaluations.
    """
    fits = (0, 0)
    above: tuple[int, int] | None = None
    guess = max(1, start // step)
    while above is None or above[0] - fits[0] > 1:
        peak = peak_bytes(guess * step)
        if peak <= limit_bytes:
            fits = (guess, peak)
        else:
            above = (guess, peak)
        if fits[0] * step >= _MOST:
            break
        guess = _next_guess(fits, above, limit_bytes)
    return fits[0] * step


def _next_guess(fits: tuple[int, int], above: tuple[int, int] | None, limit_bytes: int) -> int:
    if above is None:
        return max(fits[0] + 1, min(_GROWTH * fits[0], fits[0] * limit_bytes // max(1, fits[1])))
    if fits[0] == 0:
        return above[0] // 2
    low, low_peak = fits
    high, high_peak = above
    between = low + (high - low) * (limit_bytes - low_peak) // max(1, high_peak - low_peak)
    return min(max(low + 1, between), high - 1)
