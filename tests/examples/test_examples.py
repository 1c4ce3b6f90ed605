"""Every example is short, says how to run it, and has a page and a test."""

import ast

import pytest

from tests.examples.conftest import FOLDER

NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "train_in_one_file"))


def test_examples_exist():
    assert len(NAMES) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_example_is_short_and_documents_its_command(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert text.count("\n") <= 100
    assert f"python examples/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_example_has_a_page_and_a_test(name):
    page = FOLDER.parent / f"docs/tutorials/examples/{name}.md"
    assert page.exists() and f"examples/{name}.py" in page.read_text()
    assert (FOLDER.parent / f"tests/examples/test_{name}.py").exists()
