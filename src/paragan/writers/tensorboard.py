"""TensorBoard files in RUN/tensorboard: values of steps, scores with protocol, telemetry; samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.event import Event
from paragan.core.files import create_subfolder
from paragan.core.strict_yaml import to_yaml
from paragan.storage.image_sheet import make_sheet
from paragan.writers._tracker import event_numbers, event_protocol, require_package, run_config


class Writer:
    """Writer of TensorBoard files; requires `pip install 'paragan[tensorboard]'`.

    Values that an earlier session wrote after `step` are hidden.
    """

    def __init__(self, options: object, folder: Path, step: int = 0) -> None:
        require_package("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        subfolder = str(create_subfolder(folder, "tensorboard"))
        self._writer = SummaryWriter(subfolder, purge_step=step + 1 if step > 0 else 0)  # the first hidden step
        self._add_yaml("config", run_config(folder), max(0, step))

    def write(self, event: Event) -> None:
        """Write the numbers, texts and images of an event."""
        for name, value in event_numbers(event).items():
            self._writer.add_scalar(name, value, event.step)
        if protocol := event_protocol(event):
            self._add_yaml("score/protocol", protocol, event.step)
        if event.kind in ("advice", "event"):
            text = "  ".join(map(str, event.values.values()))
            self._writer.add_text(event.kind, text, event.step)
        if event.x_BCHW is not None:
            self._writer.add_image("samples", make_sheet(event.x_BCHW, event.columns), event.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    def _add_yaml(self, name: str, values: Mapping[str, Any], step: int) -> None:
        lines = to_yaml(dict(values)).splitlines()
        self._writer.add_text(name, "\n".join(f"    {line}" for line in lines), step)  # a Markdown block
