"""PNG grids: a run's pictures of its fixed latents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from paragan.core.event import Event
from paragan.core.files import atomic_write, create_subfolder
from paragan.storage.image_formats import SHEET_FORMATS
from paragan.storage.image_sheet import make_sheet


@dataclass(frozen=True)
class Options:
    """There are none."""


class Writer:
    """Saves the pictures of a note where its `path` says, relative to the run folder."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        self._folder = folder

    def write(self, note: Event) -> None:
        if note.x_BCHW is not None:
            create_subfolder(self._folder, "samples")
            save_grid(note.x_BCHW, self._folder / note.values["path"], note.columns)

    def close(self) -> None:
        """Nothing is held."""


def save_grid(x_BCHW: Tensor, path: Path, columns: int, least_pixels: int = 32) -> None:
    """The sheet of these images (`_sheet.sheet`), as a PNG or JPEG by the ending. Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = SHEET_FORMATS[path.suffix.lower()]
    more = {"quality": 95} if kind == "JPEG" else {}
    with atomic_write(path) as file:
        picture(make_sheet(x_BCHW, columns, least_pixels)).save(file, kind, **more)


def picture(sheet_CHW: Tensor) -> Image.Image:
    """uint8 (1 or 3, H, W) as a Pillow image."""
    array = sheet_CHW.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
