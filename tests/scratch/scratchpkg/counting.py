"""A writer outside the package: the number of events of each kind, in events.txt."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """No options."""


class Writer:
    def __init__(self, options, folder, step=0):
        self.path = folder / "events.txt"
        self.counts = Counter()

    def write(self, event):
        self.counts[event.kind] += 1

    def close(self):
        self.path.write_text("\n".join(f"{kind} {count}" for kind, count in self.counts.items()))
