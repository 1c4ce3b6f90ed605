"""Count of faults that runs survive: all campaigns of tests/chaos. python -m benchmarks.chaos [FOLDER]

FOLDER: finished campaigns are stored there, and not repeated by a later call.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.record import write
from tests.chaos.campaigns import CAMPAIGNS, run


def campaign(kind: str, strategy: str, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Return the report of a campaign, from its file if there is one."""
    path = folder / f"{kind}-{strategy}-{seed}.json"
    if not path.exists():
        with tempfile.TemporaryDirectory() as root:
            path.write_text(json.dumps(run(kind, strategy, count, seed, Path(root) / "root")))
    return json.loads(path.read_text())


def summary(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return totals, and one line for each campaign."""
    kinds: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    for report in reports.values():
        kinds.update(report.get("kinds", {}))
        phases.update(report.get("phases", {}))
    return {
        "injected": sum(report["injected"] for report in reports.values()),
        "survived": sum(report["survived"] for report in reports.values()),
        "kinds": kinds,
        "phases": phases,
        "campaigns": reports,
    }


def main(folder: Path) -> None:
    """Run what is missing, and write the result."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = {f"{one[0]} {one[1]} {one[3]}": campaign(*one, folder) for one in CAMPAIGNS}
    write("chaos", summary(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
