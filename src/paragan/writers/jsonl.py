"""The record: one JSON object per line, appended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Writer:
    """Lines after `step` belong to a future that was lost; a resumed run drops them before it appends."""

    def __init__(self, path: Path, step: int = 0) -> None:
        if path.exists():
            _keep_until(path, step)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 held for the run

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _keep_until(path: Path, step: int) -> None:
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if _step(line) <= step]
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in kept))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line cut short by a kill
