"""The public names of `paragan` are known to type checkers and listed by `help(paragan)`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import paragan

NAMES = sorted(name for name in paragan.__all__ if not name.startswith("__"))


def test_help_lists_every_public_name():
    words = set(re.findall(r"\w+", paragan.__doc__ or ""))
    options_of_penalties = {name for name in NAMES if name.endswith("Options") and name not in words}
    assert set(NAMES) - words == options_of_penalties
    assert all(
        f"{name.removesuffix('Options').removesuffix('Penalty')}Penalty" in words for name in options_of_penalties
    )


def test_mypy_infers_the_type_of_every_public_name(tmp_path):
    pytest.importorskip("mypy")
    lines = ["import paragan as pg", *(f"reveal_type(pg.{name})" for name in [*NAMES, "config"])]
    (tmp_path / "names.py").write_text("\n".join(lines) + "\n")
    root = Path(paragan.__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), str(tmp_path / "names.py")]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    revealed = re.findall(r"names.py:(\d+): note: Revealed type is (.+)", ended.stdout)
    assert len(revealed) == len(NAMES) + 1, ended.stdout
    assert [lines[int(line) - 1] for line, kind in revealed if kind == '"Any"'] == []
