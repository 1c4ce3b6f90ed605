"""Pages of the docs that are written by a program: `python -m pages`. The tests fail where one is out of date."""

from __future__ import annotations

from pathlib import Path

from pages import api, commands, recipe, settings


def pages(docs: Path) -> dict[Path, str]:
    """Every generated page: where it lies and what it says."""
    single = {"api.md": api.page(), "cli.md": commands.page(), "settings.md": settings.page()}
    return {**{docs / name: text for name, text in single.items()}, **recipe.pages(docs / "recipes")}
