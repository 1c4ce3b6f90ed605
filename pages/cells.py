"""Texts of table cells, of at most `MAX_WORDS` words: what is longer is cut where a sentence or a clause ends."""

from __future__ import annotations

import re

MAX_WORDS = 20


def split(text: str) -> tuple[str, str]:
    """Return what a cell has of a text, and the rest, which stands below the table."""
    if _words(text) <= MAX_WORDS:
        return text, ""
    for end in (r"(?<=\.) ", r"(?<=;) ", r"(?<=,) ", r" (?=\()", r" "):
        parts = re.split(end, text)
        fitting = [n for n in range(1, len(parts)) if _words(" ".join(parts[:n])) <= MAX_WORDS]
        if fitting:
            return " ".join(parts[: fitting[-1]]).rstrip(",:;"), " ".join(parts[fitting[-1] :])
    raise ValueError(f"a word of more than {MAX_WORDS} words: {text}")


def _words(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))
