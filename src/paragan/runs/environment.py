"""Versions and hardware of a run: the `environment.json` of its folder."""

import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paragan.core.files import read_json_file

_MAX_BYTES = 1 << 20


def environment(ranks: int = 1) -> dict[str, Any]:
    """Return versions and hardware for `environment.json`; no environment variables (secrets)."""
    import numpy
    import torch

    from paragan import __version__

    return {
        "paragan": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "ranks": ranks,
        "command": sys.argv,
    }


def read_environment(path: Path) -> Mapping[str, Any]:
    """Return the `environment.json` of a run folder; empty if it is missing or invalid."""
    with suppress(OSError, ValueError):
        return read_json_file(path / "environment.json", dict, _MAX_BYTES)
    return {}
