"""Page of `paragan serve` that applies a generator to a file of the user, as `paragan apply`; nothing is stored."""

import time
from dataclasses import replace

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.export.application import Application
from paragan.export.sampler import Sampler
from paragan.report.rendering import served_page
from paragan.runs.apply_files import apply_to_content, check_packages

MAX_BYTES = 64 << 20  # of a file
MAX_SIZE = 1 << 26  # of its output, in pixels or samples


class FilePage:
    """Page with the input and the output of a generator of images from images, or of audio.

    Raises `ConfigError` for a generator that takes several inputs.
    """

    request = "POST apply"  # that the page sends
    names = ("direction",)  # of values in its query

    def __init__(self, sampler: Sampler, title: str) -> None:
        directions = tuple(getattr(sampler.net, "directions", ()))  # none: one application, of the name ""
        self._data_options = sampler.config.data.options
        try:
            self._applications = {name: sampler.application(name or None) for name in directions or ("",)}
            application = next(iter(self._applications.values()))
            check_packages(application)
        except ConfigError as error:
            raise ConfigError(f"serve: {str(error).removeprefix('apply: ')}") from None
        is_image = application.kind == "image"
        self.media_type = "image/png" if is_image else "audio/wav"
        ending = ".png" if is_image else ".wav"
        view = {"title": title, "directions": directions, "most": MAX_BYTES, "ending": ending}
        self.html, self.policy = served_page(application.kind, view)

    def answer(self, values: dict[str, str], content: bytes, deadline: float) -> bytes:
        """Return the output for the content of a file. deadline: by `time.monotonic`; checked before each tile."""
        direction = values.get("direction", "")
        if direction not in self._applications:
            listed = " or ".join(filter(None, self._applications))
            raise ConfigError(f"direction is invalid; {f'pass {listed}' if listed else 'leave it out'}")
        application = _with_deadline(self._applications[direction], deadline)
        return apply_to_content(application, content, "this file", self._data_options, MAX_SIZE)


def _with_deadline(application: Application, deadline: float) -> Application:
    """Return the application, whose calls raise `TimeoutError` after the deadline."""

    def call(x: Tensor) -> Tensor:
        if time.monotonic() > deadline:
            raise TimeoutError("the file takes too long; cut it into parts")
        return application.call(x)

    return replace(application, call=call)
