"""Text from outside for a terminal: names and configs may contain control sequences."""

from __future__ import annotations


def to_printable(text: object) -> str:
    """Return the text with a question mark for every unprintable character but newlines."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in str(text))
