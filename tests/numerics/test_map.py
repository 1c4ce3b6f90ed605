"""The map of the checks (README.md) names tests that exist, and every check."""

import re
from pathlib import Path

MAP = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
ROOT = Path(__file__).resolve().parents[2]


def test_every_named_test_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", MAP)
    assert len(named) > 60
    missing = [(path, test) for path, test in named if f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8")]
    assert not missing


def test_every_check_has_a_row():
    cells = re.findall(r"^\| (\d[\d, -]*) \|", MAP, re.MULTILINE)
    ranges = [part.partition("-") for cell in cells for part in cell.split(", ")]
    found = [n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)]
    assert sorted(found) == list(range(1, 121))
