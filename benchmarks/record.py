"""What every benchmark leaves behind: one file of results with its date and the kind of machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).resolve().parent / "results"


def write(name: str, found: Mapping[str, Any], on: str | None = None) -> Path:
    """`results/DATE-NAME.json`, told on the console. on: the kind of machine where it is not the processor."""
    told = {"date": date.today().isoformat(), "machine": on or machine(), "torch": torch.__version__, **found}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{told['date']}-{name}.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    print(path)
    return path


def machine() -> str:
    """The kind of machine: processor and whether it multiplies bfloat16."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    flags = next((line for line in lines if line.startswith("flags")), "")
    return model + "".join(f", {flag}" for flag in ("avx512_bf16", "amx_bf16") if flag in flags)
