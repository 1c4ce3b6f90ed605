"""Sheets of images as files: a run's sample sheets, and PNG or JPEG for others."""

from pathlib import Path

from PIL import Image
from torch import Tensor

from paragan.core.event import Event
from paragan.core.files import atomic_write, create_subfolder
from paragan.storage.image_formats import SHEET_FORMATS
from paragan.storage.image_sheet import make_sheet


class Writer:
    """Writer that saves the images of an event to its `path`, relative to the run folder."""

    def __init__(self, options: object, folder: Path, step: int = 0) -> None:
        self._folder = folder

    def write(self, event: Event) -> None:
        """Save the images of an event, if it has any."""
        if event.x_BCHW is not None:
            create_subfolder(self._folder, "samples")  # refuses a link, through which it would write elsewhere
            save_grid(event.x_BCHW, self._folder / event.values["path"], event.columns)

    def close(self) -> None:
        """Do nothing: no resources are open."""


def save_grid(x_BCHW: Tensor, path: Path, columns: int) -> None:
    """Save a sheet of images (`make_sheet`) as PNG or JPEG, by suffix; writes atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    format_name = SHEET_FORMATS[path.suffix.lower()]
    options = {"quality": 95} if format_name == "JPEG" else {}
    with atomic_write(path) as file:
        to_pil_image(make_sheet(x_BCHW, columns)).save(file, format_name, **options)


def to_pil_image(sheet_CHW: Tensor) -> Image.Image:
    """Convert uint8 (C, H, W) with 1, 3 or 4 channels to a Pillow image; sheets have 1 or 3."""
    array = sheet_CHW.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
