"""Self-contained page of the run (report.html), rendered at each evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paragan.core.files import write_text
from paragan.report.page import Page

if TYPE_CHECKING:
    from paragan.core.event import Event

__all__ = ["NAME", "Page", "Writer", "render", "save"]

NAME = "report.html"


class Writer:
    """Writer that renders the record of `folder`, which must be written before."""

    def __init__(self, options: object, folder: Path, step: int) -> None:
        self._folder = folder
        self._page = Page(folder)

    def write(self, event: Event) -> None:
        """Render the page at an evaluation, the first samples and the end."""
        if event.kind in ("score", "end") or (event.kind == "samples" and event.step == 0):
            self._save()

    def close(self) -> None:
        """Render the final page of the session."""
        self._save()

    def _save(self) -> None:
        save(self._page.render(), self._folder / NAME)


def render(folder: Path, live: bool = False) -> str:
    """Render the page of the run in `folder`; raises `CheckpointError` if it is no run folder.

    live: the page polls its server for changes (`paragan report --serve`).
    """
    return Page(folder).render(live)


def save(page: str, path: Path) -> None:
    """Write the page atomically."""
    write_text(path, page)
