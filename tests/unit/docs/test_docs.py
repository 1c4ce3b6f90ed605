"""Every Python block of the docs runs; every file the README and docs link to exists."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from paragan.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
TOP = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
PAGES = sorted([*TOP, *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"((?:^<!-- before: .* -->\n)*)^```python\n(.*?)^```", re.S | re.M)
BLOCKS = [
    pytest.param(page, before, block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (before, block) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A working folder per page: what one block writes, the next one reads."""
    return {page: tmp_path_factory.mktemp(page.stem) for page in PAGES}


def test_docs_have_python_blocks():
    assert {block.values[0].stem for block in BLOCKS} >= {"pieces", "concepts", "first-run"}


@pytest.mark.usefixtures("quick_judge")
@pytest.mark.parametrize(("page", "before", "block"), BLOCKS)
def test_python_block_runs(page, before, block, folders, monkeypatch):
    monkeypatch.chdir(folders[page])
    monkeypatch.setenv("PARAGAN_CACHE", str(folders[page] / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds the folder to it
    for command in re.findall(r"before: (.*) -->", before):  # what the reader has done by then, in short
        assert main(shlex.split(command)) == 0
    exec(compile(block, "block", "exec"), {"__name__": "block"})  # noqa: S102 our own page


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may name."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}


def broken(page: Path) -> list[str]:
    """Links of a page to files that do not exist, or to headings that a page does not have."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if ":" in path or (target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))):
            continue
        wrong.append(link)
    return wrong


def test_links_to_files_and_headings_exist():
    assert {page.relative_to(ROOT).as_posix(): links for page in PAGES if (links := broken(page))} == {}


def test_links_that_are_broken_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n[a](#a-page) [b](page.md#b) [c](other.md) [d](https://a.org/b#c)\n")
    assert broken(page) == ["page.md#b", "other.md"]
