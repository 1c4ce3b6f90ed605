"""A new verb and a new option of the optimiser step: which files change, and what fails where one is forgotten.

The other eight of ten tasks, each one file: `tests/unit/cli/test_ten_changes.py`,
`tests/unit/evaluation/test_outside_evaluation.py`, `tests/contract/test_outside_scheme.py`,
`tests/distributed/test_outside_strategy.py`.
"""

import re
from dataclasses import fields

import pytest

import paragan.build.players as players
from paragan.cli.verbs import VERBS
from paragan.game.options import PlayerOptions
from paragan.game.policy import Policy
from tests.checkout_copy import CheckoutCopy
from tests.processes import ROOT

TIMEOUT_S = 200
VERB_TEST = "tests/contract/test_maintenance.py::test_each_file_of_the_command_line_is_a_verb_or_part_of_one"

CURVES = '''"""`paragan curves`: the losses of a run as text."""

from pathlib import Path


def curves(run: Path) -> None:
    """Print the losses of a run."""
    print(f"losses of {run}")
'''


def test_each_file_of_the_command_line_is_a_verb_or_part_of_one():
    folder = ROOT / "src/paragan/cli"
    verbs = {verb.function.partition(":")[0] for verb in VERBS.values()}
    imported = {
        name
        for file in (ROOT / "src/paragan").rglob("*.py")
        for name in re.findall(r"paragan\.cli(?:\.| import )(\w+)", file.read_text())
    }
    assert {file.stem for file in folder.glob("*.py")} <= {*verbs, *imported, "__init__"}


def test_each_field_of_a_policy_comes_from_the_options(monkeypatch):
    passed = {}
    monkeypatch.setattr(players, "Policy", lambda **values: passed.update(values))
    players.policy(PlayerOptions())
    known_later = {"elsewhere"}  # from the strategy
    assert passed.keys() == {field.name for field in fields(Policy)} - known_later


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return CheckoutCopy(tmp_path_factory.mktemp("checkout"))


@pytest.mark.slow
def test_a_verb_is_its_file_and_its_line_in_the_table(copy):
    (copy.folder / "src/paragan/cli/curves.py").write_text(CURVES)
    assert copy.run("pytest", "-q", VERB_TEST, timeout_s=TIMEOUT_S).returncode == 1
    copy.insert("src/paragan/cli/verbs.py", '    "metrics": ', '    "curves": Verb("curves:curves"),\n')
    assert copy.run("pytest", "-q", VERB_TEST, timeout_s=TIMEOUT_S).returncode == 0
    done = copy.run("paragan", "curves", "runs/digits", timeout_s=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "losses of runs/digits\n")
    assert copy.run("pages", timeout_s=TIMEOUT_S).returncode == 0
    assert "curves   Print the losses of a run." in (copy.folder / "docs/reference/cli.md").read_text()
    assert "curves, metrics\n" in (copy.folder / "run").read_text()
    done = copy.run("pytest", "-q", "tests/unit/cli/test_run_script.py", "-k", "usage", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout
