"""`python -m paragan` and the `paragan` command."""

from __future__ import annotations

import sys


def entry() -> None:
    """Run the command line and leave with its exit code."""
    from paragan.cli.main import main  # here, so that a child process that re-imports this file pays nothing

    sys.exit(main())


if __name__ == "__main__":
    entry()
