"""The notebook-like script: short, it trains from its own networks, and the run opens again."""

import ast
import json
import runpy

import pytest

from tests.examples.conftest import FOLDER

SCRIPT = FOLDER / "notebook.py"


def test_notebook_has_at_most_25_lines_of_code():
    tree = ast.parse(SCRIPT.read_text())
    lines = {line for node in tree.body[1:] for line in range(node.lineno, node.end_lineno + 1)}
    assert len(lines) <= 25


@pytest.mark.usefixtures("quick_judge")
def test_notebook_trains_samples_and_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "notebook.py"
    script.write_text(SCRIPT.read_text().replace('"train.kimg": 16', '"train.kimg": 0.5'))
    names = runpy.run_path(str(script), run_name="__main__")
    assert names["images"].tensor.shape == (16, 1, 16, 16)
    assert (tmp_path / "notebook.png").exists()
    assert json.loads((tmp_path / "runs" / "notebook" / "exit.json").read_text())["code"] == 0
    assert names["run"].score["fd[judge]"] > 0
