"""Validation of image shapes, class counts, widths and attention, with one-line errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paragan.core.errors import ConfigError
from paragan.core.option_types import nearest_sizes, size_of
from paragan.models._options import Attention, Places

_MIN_SIDE = 8
_MAX_DOUBLINGS = 8
_MAX_LOWEST = 16  # shorter side of the smallest map, of images up to 2048 px


@dataclass(frozen=True)
class MapSizes:
    """Sizes of the maps of a network: height and width of the smallest, and how often it is doubled."""

    lowest: tuple[int, int]
    doublings: int

    @property
    def sides(self) -> list[int]:
        """The shorter side of every map, from the smallest to the image."""
        return [min(self.lowest) << number for number in range(self.doublings + 1)]

    def size(self, number: int) -> tuple[int, int]:
        """Return height and width of the smallest map doubled `number` times."""
        return self.lowest[0] << number, self.lowest[1] << number


def map_sizes(shape: tuple[int, ...]) -> MapSizes:
    """Return the maps of a network that doubles up to images of a shape.

    The shorter side of the smallest map is 4 to 7, as of squares of 4 or 6 doubled; up to 16 where the sides cannot
    be halved so often. So the sides are multiples of 4 where the shorter one has at most 64 px, of 8 up to 128 px, of
    16 up to 256 px, … 48x48 is 6x6 doubled three times, 64x68 is 16x17 doubled twice, and 100x100 would need
    multiples of 8. Raises `ConfigError` for other sizes.
    """
    check_image_size(shape, min_side=_MIN_SIDE)
    sides = shape[1:]
    doublings = min(min(sides).bit_length() - 3, _MAX_DOUBLINGS)  # to a side of 4 to 7
    # where one less would leave too large a map, the check below refuses the sides
    while doublings > 2 and any(side % 2**doublings for side in sides) and min(sides) <= _MAX_LOWEST << doublings - 1:
        doublings -= 1
    check_image_size(shape, max(4, 2**doublings))
    return MapSizes((sides[0] >> doublings, sides[1] >> doublings), doublings)


def check_image_size(
    shape: tuple[int, ...], multiple: int = 1, needed_by: str = "this model", min_side: int = 1
) -> None:
    """Raise `ConfigError` for no image, a too small one, and, with the nearest sizes, sides that are no multiples."""
    if len(shape) != 3:
        raise ConfigError(f"{needed_by} needs images, but samples have shape {shape}; choose another model.name")
    sides = shape[1:]
    if min(sides) < min_side:
        raise ConfigError(f"data.size={size_of(*sides)} is too small for {needed_by}; use {min_side} or more")
    if any(side % multiple for side in sides):
        raise ConfigError(
            f"data.size={size_of(*sides)} is not a multiple of {multiple}, which {needed_by} needs; "
            f"use {nearest_sizes(sides, multiple)}, or resize the images"
        )


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

    wanted: the setting. default: value of "default". maps: valid (shorter) sides. Raises `ConfigError` for a
    side without a map.
    """
    setting: Places = default if wanted == "default" else wanted
    sides = setting.get(player) if isinstance(setting, dict) else setting
    numbers = (sides,) if isinstance(sides, int) else tuple(sides or ())
    for side in numbers:
        if side not in maps:
            known = ", ".join(map(str, sorted(maps)))
            raise ConfigError(
                f"model.attention: {player.upper()} has no map of {side}x{side}; use one of "
                f"{known} (model.attention.{player}=SIDE), or null for none"
            )
    return numbers
