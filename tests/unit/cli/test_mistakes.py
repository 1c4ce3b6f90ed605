"""Typical mistakes of users: exit code 2, one line per problem, no traceback, no file lost.

`tests/mistakes.yaml` holds each command and its exact output. After a change of messages run
`PARAGAN_SNAPSHOTS=write ./run test -k mistakes -n 0` and read the difference.
"""

import os
import re
import shlex
from pathlib import Path

import pytest
import yaml

from paragan.cli.main import main
from tests.unit.cli import mistaken

TABLE = Path(__file__).parents[2] / "mistakes.yaml"
ROWS = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
WRITE = os.environ.get("PARAGAN_SNAPSHOTS") == "write"
# a new setting moves the lines of a resolved config, but not those of a file that the user wrote
RESOLVED_LINE = re.compile(r"(runs/digits/config\.yaml:)\d+:")
HARMLESS = ("runs", "judge")  # a run folder may exist by then; it holds no checkpoint


def test_table_has_at_least_forty_different_mistakes():
    assert len(ROWS) >= 40
    assert len({row["command"] + row.get("setup", "") for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["mistake"].replace(" ", "-") for row in ROWS])
def test_mistake_prints_the_message_and_exits_with_code_2(row, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with mistaken.prepared(row.get("setup", ""), tmp_path, monkeypatch):
        before = _files(tmp_path)
        capsys.readouterr()
        code = main(shlex.split(row["command"]))
        after = _files(tmp_path)
    lines = capsys.readouterr().err.replace(str(tmp_path), "HERE").strip().splitlines()
    output = "\n".join(line for line in lines if not line.startswith("warning:"))
    output = RESOLVED_LINE.sub(r"\g<1>LINE:", output)
    if WRITE:
        row["output"] = output
        TABLE.write_text(mistaken.to_yaml(ROWS), encoding="utf-8")
    assert output == row["output"].strip()
    assert code == 2
    assert "Traceback" not in output
    assert before <= after  # nothing lost


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}
