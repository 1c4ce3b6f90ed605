"""What every benchmark leaves behind: one file of results with its date and the kind of machine."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write(name: str, found: Mapping[str, Any], on: str | None = None) -> Path:
    """Write `results/DATE-NAME.json`, print its path and return it.

    on: the kind of machine if it is not the processor.
    """
    head = {"date": date.today().isoformat(), "machine": on or machine(), "torch": importlib.metadata.version("torch")}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{head['date']}-{name}.json"
    path.write_text(json.dumps({**head, **found}, indent=1) + "\n")
    print(path)
    return path


def machine() -> str:
    """Return the kind of machine: processor, and its bfloat16 instructions if it has any."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return model + "".join(f", {flag}" for flag in ("avx512_bf16", "amx_bf16") if flag in flags)
