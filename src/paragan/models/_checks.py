"""Validation of image shapes, class counts, widths and attention, with one-line errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from paragan.core.errors import ConfigError
from paragan.models._options import Attention, Places

_SIDES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def image_side(shape: tuple[int, int, int], model: str, largest: int = 128) -> int:
    """Return the side of square images: 4 or 6 doubled up to `largest`, or raise `ConfigError`."""
    _, height, width = shape
    valid = [side for side in _SIDES if side <= largest]
    if height == width and height in valid:
        return height
    near = next((side for side in valid if side >= max(height, width)), valid[-1])
    larger = "; model=stylegan2 and biggan reach 1024 px (recipe own-256)"
    larger = "" if max(height, width) <= valid[-1] or largest > 512 else larger
    raise ConfigError(
        f"model {model} does not support images of {height}x{width}, only squares of "
        f"{', '.join(map(str, valid))}; resize them to {near}x{near} "
        f"(data.size={near}, where the data set has it){larger}"
    )


def num_doublings(side: int) -> int:
    """Return how often the smallest map, of 4 or 6 px, is doubled."""
    return side.bit_length() - 3


def lowest_side(side: int) -> int:
    """Return the side of the smallest map: 4, or 6 for images of three times a power of two."""
    return side >> num_doublings(side)


def effective_num_classes(conditional: bool | None, num_classes: int) -> int:
    """Return the number of classes of the network; conditional=None: if the data has labels."""
    if conditional is None:
        return num_classes if num_classes > 1 else 0
    if conditional and not num_classes:
        raise ConfigError("model.conditional=true needs labels, but the data has none; pass model.conditional=false")
    return num_classes if conditional else 0


def attention_sides(
    wanted: Attention, player: Literal["g", "d"], default: Places, maps: Sequence[int]
) -> tuple[int, ...]:
    """Return the sides of the maps of one player that have self-attention.

    wanted: the setting. default: value of "default". maps: valid sides. Raises `ConfigError` for a
    side without a map.
    """
    setting: Places = default if wanted == "default" else wanted
    sides = setting.get(player) if isinstance(setting, dict) else setting
    chosen = (sides,) if isinstance(sides, int) else tuple(sides or ())
    for side in chosen:
        if side not in maps:
            known = ", ".join(map(str, sorted(maps)))
            raise ConfigError(
                f"model.attention: {player.upper()} has no map of {side}x{side}; use one of "
                f"{known} (model.attention.{player}=SIDE), or null for none"
            )
    return chosen
