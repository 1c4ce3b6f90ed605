"""Pages of the docs that are written by a program: `python -m pages`. The tests fail where one is out of date."""

from __future__ import annotations

from pathlib import Path

from pages import api, commands, recipe


def pages(docs: Path) -> dict[Path, str]:
    """Every generated page: where it lies and what it says."""
    return {docs / "api.md": api.page(), docs / "cli.md": commands.page(), **recipe.pages(docs / "recipes")}
