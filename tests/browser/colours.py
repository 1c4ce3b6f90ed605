"""Whether text can be read, as WCAG 2 defines it."""

import re


def luminance(colour: str) -> float:
    """Relative luminance of rgb(r, g, b), as WCAG defines it."""
    parts = (int(n) / 255 for n in re.findall(r"\d+", colour)[:3])
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)
