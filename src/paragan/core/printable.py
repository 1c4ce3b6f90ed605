"""Text of others on a terminal: file names, configs and tensors may hold what moves its cursor."""

from __future__ import annotations


def to_printable(text: object) -> str:
    """Return the same lines with a question mark for escapes, bells and all that is not printed."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in str(text))
