"""The version of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path


def revision(path: Path | None) -> str:
    """Return the commit of a checkout, with its date where git knows it."""
    command = ["git", "-C", str(path), "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.stdout.strip() or "no revision"
