"""Generated pages and plots of the docs: `python -m pages` writes them.

`python -m pages record RUN RECIPE` stores a run for the page of its recipe.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import pages
from pages.recipe import plots, store_run

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main(words: list[str]) -> int:
    match words:
        case []:
            for path, text in (pages(DOCS) | plots(DOCS / "reference" / "recipes")).items():
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
        case ["record", run, name]:
            store_run(Path(run), DOCS / "reference" / "recipes", name)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
