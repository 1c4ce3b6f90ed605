"""Description of the machine that a benchmark ran on."""

from __future__ import annotations

import platform
from pathlib import Path

_BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def cpu_model() -> str:
    """CPU model, and whether it has bfloat16 instructions."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return model + "".join(f", {'with' if flag in flags else 'without'} {flag}" for flag in _BF16_FLAGS)
