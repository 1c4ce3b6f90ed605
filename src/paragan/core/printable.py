"""Text for a terminal: printable, because names and configs may contain control sequences; lines of progress."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paragan.core.phases import beat

_PASSWORD = re.compile(r"(?<=:/)(/?)[^/@\s]*:[^/@\s]+@")  # of an address, or of one that was taken as a path


def to_printable(text: object) -> str:
    """Return the text with a question mark for every unprintable character but newlines, without passwords in URLs."""
    without_passwords = _PASSWORD.sub(r"\1***@", str(text))
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in without_passwords)


def join_some(words: Sequence[object], limit: int = 5, separator: str = ", ") -> str:
    """Return the first words as text, with an ellipsis if there are more."""
    more = f"{separator}…" if len(words) > limit else ""
    return separator.join(map(str, words[:limit])) + more


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1: `1 class`, `2,000 classes`. noun: in the singular."""
    plural = "" if count == 1 else "es" if noun.endswith(("s", "ch", "x")) else "s"
    return f"{count:,} {noun}{plural}"


def size_text(sizes: Iterable[int]) -> str:
    """Return the sizes of the axes of a tensor as text, such as `3x32x32`."""
    return "x".join(map(str, sizes)) or "a number"


def print_line(text: object, link: Path | None = None) -> None:
    """Print a text at once, without control characters: warnings to standard error, others to standard output.

    link: a file whose name in the text a terminal shows as a link (OSC 8).
    """
    line = to_printable(text)
    file = sys.stderr if line.startswith("warning:") else sys.stdout
    if link is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        shown = to_printable(link.name)
        line = line.replace(shown, f"\x1b]8;;{link.absolute().as_uri()}\x1b\\{shown}\x1b]8;;\x1b\\", 1)
    print(line, file=file, flush=True)


def print_to_stderr(text: object) -> None:
    """Print a text to standard error at once, without control characters."""
    print(to_printable(text), file=sys.stderr, flush=True)


_PERIOD_S = 10.0  # between two lines


@dataclass(kw_only=True)
class ProgressLines:
    """Function that reports a count of finished items: a line every 10 s, none for shorter work.

    label: first word of the line. unit: what is counted. log: receives the lines.
    """

    label: str
    unit: str
    total: int
    log: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _reported: float = field(default_factory=time.monotonic)

    def __call__(self, done: int) -> None:
        """Report that `done` items are finished."""
        beat()
        now = time.monotonic()
        if now - self._reported < _PERIOD_S or not 0 < done < self.total:
            return
        left_s = (now - self._began) / done * (self.total - done)
        self._reported = now
        self.log(f"{self.label:<9} {done:,} of {self.total:,} {self.unit}, about {left_s:.0f} s left")
