"""docs/reference/comparison/threads.md: every thread has an answer, and what shows it exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/reference/comparison/threads.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| thread ")
]


def headings(page: Path) -> set[str]:
    """Anchors of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_page_answers_seventy_threads():
    threads = [number for row in ROWS for number in re.findall(r"#\d+", row[0])]
    assert len(threads) >= 70
    assert sum("**" in row[2] for row in ROWS) >= 5, "what is not done is said so"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_row_names_a_page_or_a_test_that_exists(row):
    _, request, answer, shown_by = row
    assert request and answer
    files = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", shown_by)
    links = re.findall(r"\]\(([\w/.-]+\.md)(?:#([\w-]+))?\)", shown_by)
    assert files or links, shown_by
    for file, function in files:
        names = {getattr(node, "name", "") for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))}
        assert not function or function in names, shown_by
    for page, anchor in links:
        assert not anchor or anchor in headings(ROOT / "docs/reference/comparison" / page), shown_by
