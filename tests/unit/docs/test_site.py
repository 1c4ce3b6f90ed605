"""Generated pages are what their generator writes now; each recipe has one; the site builds without a warning."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

import paragan
from pages import pages, recipe
from paragan.cli.main import command_line
from paragan.core import registry

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generated():
    """Pages by path, as their generator writes them now."""
    return pages(DOCS)


def test_generated_pages_are_up_to_date(generated):
    outdated = [
        path.name for path, text in generated.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert outdated == [], "run `python -m pages` and commit what it writes"


def test_recipes_and_pages_match():
    there = {path.stem for path in (DOCS / "reference" / "recipes").glob("*.md")}
    assert there == {"index", *registry.names("recipes")}


def test_recipe_index_marks_complete_runs(generated):
    index = generated[DOCS / "reference" / "recipes" / "index.md"]
    rows = re.findall(r"^\| \[(.+?)\]\(.+\| (.+?) \|$", index, re.M)
    marked = {name for name, score in rows if score != "settings only"}
    with_curve = {path.stem for path in (DOCS / "reference" / "recipes").glob("*.jsonl")}
    assert marked == with_curve and len(rows) == len(registry.names("recipes"))
    assert f"{len(with_curve)} of {len(rows)} recipes have a complete run" in index
    text = " ".join((DOCS / "index.md").read_text(encoding="utf-8").split())
    assert f"ecipes, {len(with_curve)} of them with the curve" in text


def test_api_page_has_every_public_name(generated):
    page = generated[DOCS / "reference" / "api.md"]
    headings = re.findall(r"^### (\w+)$", page, re.M)
    assert set(headings) == {name for name in dir(paragan) if not name.startswith("__")}
    assert " at 0x" not in page


def test_command_line_page_has_every_verb(generated):
    page = generated[DOCS / "reference" / "cli.md"]
    verbs = re.findall(r"^  ([a-z]+) {2,}\S", page.partition("Commands:")[2].partition("```")[0], re.M)
    assert "train" in verbs
    assert re.findall(r"^## (\w+)$", page, re.M) == verbs


@pytest.mark.slow
def test_stored_plots_are_up_to_date():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
    if f"matplotlib=={matplotlib.__version__}\n" not in (ROOT / "constraints.txt").read_text():
        pytest.skip(f"the plots are drawn by the matplotlib of constraints.txt, not {matplotlib.__version__}")
    drawn = recipe.plots(DOCS / "reference" / "recipes")
    assert set(drawn) == {path.with_suffix(".svg") for path in (DOCS / "reference" / "recipes").glob("*.jsonl")}
    for path, text in drawn.items():
        assert path.read_text() == text, "out of date: run `python -m pages` and commit what it writes"


def test_contents_of_the_settings_lists_every_section_in_order_with_links_that_exist(generated):
    text = generated[DOCS / "reference" / "settings.md"]
    head, _, rest = text.partition("\n\n## ")
    titles = re.findall(r"^###? (.+)$", "## " + rest, re.MULTILINE)
    listed = [line.removeprefix("- ") for line in head.splitlines() if line.startswith("- ")]
    names = [name for line in listed for name in re.split(r"(?<=\)): |(?<!strategy), (?!d\.)|, (?=\[)", line)]
    assert [re.sub(r"\[(.+)\]\(.*\)", r"\1", name) for name in names] == titles
    assert len(listed) == len(re.findall(r"^## ", "## " + rest, re.MULTILINE)) > 15


def test_site_has_every_page_of_its_table_of_contents():
    listed = re.findall(r"[\w/-]+\.md", json.dumps(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert [page for page in listed if not (DOCS / page).exists()] == []
    linked_from_a_page = ("recipes", "examples")
    there = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if path.parent.name not in linked_from_a_page]
    assert {path.as_posix() for path in there} - set(listed) == set(), "pages that mkdocs.yml does not name"


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="zensical comes with the extra `docs`")
def test_site_builds_without_warnings_and_loads_nothing_from_other_hosts(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "build" / "site" / "index.html").exists()
    for page in (tmp_path / "build" / "site").rglob("*.html"):
        remote = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert remote == [], page


def leaves(command, words=()):
    """Every verb that takes arguments, with its words."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield " ".join(words), command
    for name in inner:
        yield from leaves(inner[name], (*words, name))


@pytest.mark.parametrize(("words", "verb"), [*leaves(typer.main.get_command(command_line()))])
def test_every_option_of_every_verb_is_on_its_page(words, verb):
    _, _, rest = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8").partition(f" {words}\n\n```text\n")
    section = rest.partition("```")[0]
    options = [option for parameter in verb.params for option in parameter.opts if option.startswith("--")]
    assert section and [option for option in options if f"{option} " not in section] == []
