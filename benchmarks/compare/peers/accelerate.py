"""The same loop with Hugging Face's accelerate."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.compare.plain import plain
from benchmarks.compare.works import Prepared

SOURCE = None
WORKS = ("sngan",)


def prepare(work: str, path: Path | None) -> Prepared:
    from accelerate import Accelerator

    one = Accelerator(cpu=True)
    return plain(work, f"accelerate {version('accelerate')}", one.prepare, one.backward)
