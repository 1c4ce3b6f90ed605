"""report.html: the run on one page that needs nothing else, made again at each evaluation."""

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
    """Follows the record of `folder`, which must be written before."""

    def __init__(self, options: object, folder: Path, step: int) -> None:
        self._folder, self._page = folder, Page(folder)

    def write(self, note: Event) -> None:
        """Make the page again at an evaluation, the first pictures and the end."""
        if note.kind in ("score", "end") or (note.kind == "samples" and note.step == 0):
            self._save()

    def close(self) -> None:
        """The page as the session leaves it."""
        self._save()

    def _save(self) -> None:
        save(self._page.render(), self._folder / NAME)


def render(folder: Path, live: bool = False) -> str:
    """The page of the run in `folder`. live: for `paragan report --serve`, it asks its server for changes.

    Raises `CheckpointError` where `folder` is no run folder.
    """
    return Page(folder).render(live)


def save(page: str, path: Path) -> None:
    """Whole or not at all; a reader never sees half a page."""
    write_text(path, page)
