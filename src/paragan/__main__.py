"""`python -m paragan` and the `paragan` command."""

from __future__ import annotations

import sys


def entry() -> None:
    """Run the command line and leave with its exit code."""
    from paragan.cli.main import main  # here, so that a child process that re-imports this file pays nothing

    sys.exit(main())


if __name__ == "__main__":
    if not sys.flags.safe_path:  # Python put the working directory first: a torch.py there would replace the library
        sys.path.append(sys.path.pop(0))
    entry()
