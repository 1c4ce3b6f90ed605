"""Validation of image shapes and class counts, with one-line errors."""

from __future__ import annotations

from paragan.core.errors import ConfigError

SIDES = (8, 16, 32, 64, 128)


def image_side(shape: tuple[int, int, int], model: str, sides: tuple[int, ...] = SIDES) -> int:
    """The side of square images, one of `sides`; a `ConfigError` for anything else."""
    _, height, width = shape
    if height == width and height in sides:
        return height
    near = next((side for side in sides if side >= max(height, width)), sides[-1])
    expected = ", ".join(map(str, sides))
    raise ConfigError(
        f"model {model} does not support images of {height}x{width}, only squares of {expected}; resize them to "
        f"{near}x{near} (data.size={near}, where the data set has it)"
    )


def effective_num_classes(conditional: bool | None, num_classes: int, model: str) -> int:
    """Number of classes of the network: 0 unless it is conditional; None: conditional if the data has labels."""
    if conditional is None:
        return num_classes if num_classes > 1 else 0
    if conditional and not num_classes:
        raise ConfigError("model.conditional=true needs labels, but the data has none; pass model.conditional=false")
    return num_classes if conditional else 0
