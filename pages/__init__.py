"""Generated pages of the docs: `python -m pages` writes them. A test fails if one is out of date."""

from __future__ import annotations

from pathlib import Path

from pages import api, commands, plan_schema, recipe, settings


def pages(docs: Path) -> dict[Path, str]:
    """Every generated page: its path and its text."""
    reference = docs / "reference"
    single = {"api.md": api.page(), "cli.md": commands.page(), "settings.md": settings.page()}
    single["plan.schema.json"] = plan_schema.page()
    script = docs.parent / "run"
    return {
        **{reference / name: text for name, text in single.items()},
        **recipe.pages(reference / "recipes"),
        script: commands.script(script),
    }
