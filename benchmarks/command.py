"""Start of a benchmark with options: errors that a user can mend are one line, with exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from paragan.core.errors import ParaganError


def run_command(app: typer.Typer, name: str, words: Sequence[str] | None = None) -> int:
    """Run the command of `python -m benchmarks.NAME` and return its exit code. words: None: those of the program."""
    try:
        command = typer.main.get_command(app)
        code = command(words, prog_name=f"python -m benchmarks.{name}", standalone_mode=False)
    except (ParaganError, TyperException) as error:
        text = error.format_message() if isinstance(error, TyperException) else str(error)
        print(" ".join(text.split()), file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
