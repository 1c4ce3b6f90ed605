"""Which worker runs what, and when: `./run test` on few cores.

A file stays with one worker, for its fixtures of module scope, and so do the folders below, for what costs seconds to
start or to read once per process: the ranks of tests/distributed, the parsed sources of tests/architecture, the runs
and the tracing of tests/unit/export, Chromium. What takes longest begins first, so that no worker is left with it at
the end.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.processes import ROOT

TOGETHER = ("tests/distributed/", "tests/unit/export/", "tests/architecture/", "tests/browser/")
LONGEST = ROOT / "tests" / "longest.txt"
MAX_UNIT_S = 2.0  # of CPU


class ByFile(LoadScopeScheduling):
    """As `--dist loadfile`, with the folders of `TOGETHER` as if they were one file each."""

    def _split_scope(self, nodeid: str) -> str:
        return next(filter(nodeid.startswith, TOGETHER), nodeid.partition("::")[0])


def longest() -> list[str]:
    """Folders and files that begin first, then single tests of tests/unit that take longer than `MAX_UNIT_S`."""
    return [line for line in LONGEST.read_text().splitlines() if line and not line.startswith("#")]


def order(items: list[pytest.Item]) -> None:
    """The longest first; the others stay as they are."""
    places = {name: number for number, name in enumerate(longest())}

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return min((places[name] for name in (file, f"{Path(file).parent}/") if name in places), default=len(places))

    items.sort(key=place)


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def too_long(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Unit tests over `MAX_UNIT_S` that `longest.txt` does not name."""
    known = set(longest())
    for report in reports:
        spent = dict(report.user_properties).get("cpu_s", 0)
        if report.nodeid.startswith("tests/unit/") and spent > MAX_UNIT_S and report.nodeid not in known:
            yield f"{spent:5.1f} s of CPU: {report.nodeid}"
