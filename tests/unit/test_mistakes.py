"""Typical mistakes, each as a newcomer makes it: exit code 2, one line a problem, no traceback, nothing left behind.

`tests/mistakes.yaml` holds what is typed and what is answered, word for word: found what, where, expected what, what to
do next. After a change of words: PARAGAN_SNAPSHOTS=write ./run test -k mistakes -n 0, and read the difference.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import yaml

from paragan.cli.main import main
from tests.unit import mistaken

TABLE = Path(__file__).parents[1] / "mistakes.yaml"
ROWS = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
WRITE = os.environ.get("PARAGAN_SNAPSHOTS") == "write"
HARMLESS = ("runs", "judge")  # a run folder may exist by then; it holds no checkpoint


def test_there_are_forty():
    assert len(ROWS) >= 40
    assert len({row["typed"] + row.get("given", "") for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["mistake"].replace(" ", "-") for row in ROWS])
def test_a_mistake_is_answered(row, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with mistaken.given(row.get("given", ""), tmp_path, monkeypatch):
        before = _files(tmp_path)
        capsys.readouterr()
        code = main(shlex.split(row["typed"]))
        after = _files(tmp_path)
    answer = capsys.readouterr().err.replace(str(tmp_path), "HERE").strip()
    if WRITE:
        row["answer"] = answer
        TABLE.write_text(mistaken.written(ROWS), encoding="utf-8")
    assert answer == row["answer"].strip()
    assert code == 2
    assert "Traceback" not in answer
    assert before <= after  # nothing lost


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}
