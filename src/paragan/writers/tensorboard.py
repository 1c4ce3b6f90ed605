"""TensorBoard event files in RUN/tensorboard: values of steps, scores, telemetry; samples."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import ConfigError
from paragan.core.event import Event
from paragan.core.files import create_subfolder
from paragan.storage.image_sheet import make_sheet


@dataclass(frozen=True)
class Options:
    """Content of the event files."""

    pictures: bool = True
    """Whether sample sheets are written; each takes as much space as its PNG."""


class Writer:
    """Writer of TensorBoard files; requires `pip install 'paragan[tensorboard]'`.

    Values that an earlier session wrote after `step` are hidden.
    """

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "writers: tensorboard is not installed; "
                f"run {sys.executable} -m pip install tensorboard, or remove it from writers"
            ) from None
        self._options = options
        subfolder = str(create_subfolder(folder, "tensorboard"))
        self._writer = SummaryWriter(subfolder, purge_step=step + 1 if step else 0)

    def write(self, event: Event) -> None:
        """Write the numbers, texts and images of an event."""
        if event.kind in ("step", "score", "telemetry"):
            for name, value in event.values.items():
                if isinstance(value, float):
                    self._writer.add_scalar(f"{event.kind}/{name}", value, event.step)
        elif event.kind in ("advice", "event"):
            text = "  ".join(map(str, event.values.values()))
            self._writer.add_text(event.kind, text, event.step)
        if event.x_BCHW is not None and self._options.pictures:
            self._writer.add_image("samples", make_sheet(event.x_BCHW, event.columns), event.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
