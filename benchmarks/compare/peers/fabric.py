"""The same loop with Lightning Fabric (`lightning-fabric`)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.compare.plain import plain
from benchmarks.compare.works import Prepared

SOURCE = None
WORKS = ("sngan",)


def prepare(work: str, path: Path | None) -> Prepared:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    return plain(work, f"lightning-fabric {version('lightning-fabric')}", fabric.setup, fabric.backward)
