"""TensorBoard event files in RUN/tensorboard: every number of steps, scores and telemetry, and the pictures."""

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
    """What is written besides scalars."""

    pictures: bool = True
    """Whether sample sheets are written too; each is as large as its PNG."""


class Writer:
    """Needs the extra: pip install 'paragan[tensorboard]'. What an earlier session wrote after `step` is hidden."""

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                f"writers: found tensorboard, which is not installed; {sys.executable} -m pip install tensorboard, or "
                "leave it out"
            ) from None
        self._options = options
        self._writer = SummaryWriter(str(create_subfolder(folder, "tensorboard")), purge_step=step + 1 if step else 0)

    def write(self, note: Event) -> None:
        if note.kind in ("step", "score", "telemetry"):
            for name, value in note.values.items():
                if isinstance(value, float):
                    self._writer.add_scalar(f"{note.kind}/{name}", value, note.step)
        elif note.kind in ("advice", "event"):
            self._writer.add_text(note.kind, "  ".join(map(str, note.values.values())), note.step)
        if note.x_BCHW is not None and self._options.pictures:
            self._writer.add_image("samples", make_sheet(note.x_BCHW, note.columns), note.step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
