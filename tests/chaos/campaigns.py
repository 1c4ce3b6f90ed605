"""The campaigns of `./run test all`: how many faults of which kind of run, and how one is run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import ROOT, environment

_TIMEOUT_S = 1200
CAMPAIGNS = (  # kind, strategy, faults, seed
    ("forks", "alone", 30, 1),
    *(("forks", "ddp", 12, seed) for seed in (1, 2, 3)),
    *(("forks", "zero3", 12, seed) for seed in (1, 2)),
    *(("forks", strategy, 12, 1) for strategy in ("zero1", "zero2", "hsdp")),
    *(("forks", "asynchronous", 12, seed) for seed in (1, 2)),
    *(("forks", "asynchronous-in-turns", 12, seed) for seed in (1, 2)),
    *(("forks", "parameter-server", 12, seed) for seed in (1, 2)),
    *(("forks", "grid", 20, seed) for seed in (1, 2)),
    ("new", "devices", 6, 1),
    ("new", "torchrun", 4, 1),
    *(("network", name, 4, 1) for name in ("ddp", "zero3", "asynchronous", "parameter-server", "grid")),
)


def run(kind: str, strategy: str, count: int, seed: int, folder: Path, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Run a campaign in a process of its own; what it reports. AssertionError: it could not run."""
    words = ["tests.chaos.campaign", kind, strategy, str(count), str(folder), str(seed)]
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}", PARAGAN_OFFLINE="1")
    command = [sys.executable, "-m", *words]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])
