"""Self-contained page of the run (report.html), rendered at each evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paragan.report.page import Page

if TYPE_CHECKING:
    from paragan.core.event import Event


class Writer:
    """Writer that renders the record of `folder`, which must be written before."""

    def __init__(self, options: object, folder: Path, step: int) -> None:
        self._page = Page(folder)

    def write(self, event: Event) -> None:
        """Render the page at an evaluation and the first samples."""
        if event.kind == "score" or (event.kind == "samples" and event.step == 0):
            self._page.save()

    def close(self) -> None:
        """Render the final page of the session."""
        self._page.save()
