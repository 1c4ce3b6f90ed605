"""Text from outside for a terminal: names and configs may contain control sequences."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

_PASSWORD = re.compile(r"(?<=:/)(/?)[^/@\s]*:[^/@\s]+@")  # of an address, or of one that was taken as a path


def to_printable(text: object) -> str:
    """Return the text with a question mark for every unprintable character but newlines, without passwords in URLs."""
    shown = _PASSWORD.sub(r"\1***@", str(text))
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in shown)


def join_some(words: Sequence[object], limit: int = 5, separator: str = ", ") -> str:
    """Return the first words as text, with an ellipsis if there are more."""
    more = f"{separator}…" if len(words) > limit else ""
    return separator.join(map(str, words[:limit])) + more


def print_line(text: object) -> None:
    """Print a text to standard output at once, without control characters."""
    print(to_printable(text), flush=True)


def print_to_stderr(text: object) -> None:
    """Print a text to standard error at once, without control characters."""
    print(to_printable(text), file=sys.stderr, flush=True)
