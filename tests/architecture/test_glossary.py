"""Words: those that docs/reference/glossary.md rules out are gone, and a public name has one meaning in the package."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
ALLOWANCES = Path(__file__).with_name("glossary_allowances.json")
HISTORY = ("docs/internals/journal.md", "docs/reference/glossary.md")  # of the past, or of the words themselves
# from files that are checked
GENERATED = tuple(f"docs/reference/{name}" for name in ("api.md", "cli.md", "settings.md", "recipes/"))
PROTOCOL = {  # names that files of a registry define
    *("Options", "Generator", "Discriminator", "Penalty", "Augment", "Strategy", "Optimizer", "Writer", "Metric"),
    *("Balancer", "Adapter"),
    *("Scheme", "loss", "d_loss", "g_loss", "source", "step", "quiesce", "close", "prepare"),
    *("networks",),
}
REGISTRIES = {
    *("models", "losses", "penalties", "augment", "datasets", "schemes", "parallel", "optim", "metrics", "features"),
    *("balancers", "adapters", "writers", "layouts"),
}
REMEDY = (
    "more: docs/reference/glossary.md says what to write; "
    "fewer: `python -m tests.architecture.test_glossary` and commit"
)
ALLOWED: dict[str, dict[str, int]] = json.loads(ALLOWANCES.read_text(encoding="utf-8"))
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def banned_words(glossary: str) -> frozenset[str]:
    """The first column of the first table below "Words that are not used"."""
    section = glossary.split("\n## Words that are not used\n")[1]
    table = re.search(r"\| not \| but \|\n\|[-|]+\|\n((?:\|.*\n)+)", section)
    assert table is not None
    return frozenset(row.split("|")[1].strip() for row in table.group(1).splitlines())


BANNED = banned_words(GLOSSARY.read_text(encoding="utf-8"))
ANY_BANNED = re.compile("|".join(sorted(BANNED)), re.IGNORECASE)


def words(text: str) -> list[str]:
    """Words of prose and of identifiers, in lower case: `ToldIt.was_told` is told, it, was, told."""
    return [word.lower() for word in WORD.findall(text)]


def count_banned(text: str) -> int:
    return sum(word in BANNED for word in words(text)) if ANY_BANNED.search(text) else 0


def texts() -> Iterator[tuple[str, str]]:
    """Every file that is checked, with its text; of tests, the names of the test functions."""
    package = ROOT / "src" / "paragan"
    suffixes = {".py", ".yaml", ".j2", ".html", ".js", ".css"}
    for path in (p for p in package.rglob("*") if p.suffix in suffixes):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        if name != "CHANGELOG.md" and not name.startswith((*HISTORY, *GENERATED)):
            yield name, path.read_text(encoding="utf-8")
    for folder in ("examples", "pages"):
        for path in (ROOT / folder).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in (ROOT / "tests").rglob("*.py"):
        names = re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
        yield path.relative_to(ROOT).as_posix(), " ".join([path.stem, *names])


def word_counts() -> dict[str, int]:
    """Banned words by file."""
    found = {name: count_banned(text) for name, text in texts()}
    return {name: number for name, number in sorted(found.items()) if number}


def name_counts(modules: list[Any]) -> dict[str, int]:
    """Public names of modules that more than one module defines, with the number of these modules."""
    defined = Counter(name for module in modules for name in public_names(module))
    return {name: number for name, number in sorted(defined.items()) if number > 1}


def public_names(module: Any) -> set[str]:
    """Classes and functions of a module, without the names that every file of its registry defines."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names = {node.name for node in module.tree.body if isinstance(node, kinds) and not node.name.startswith("_")}
    folders = {*module.path.parts, module.floor}
    return names - PROTOCOL if folders & {*REGISTRIES, "templates"} else names - {"main"}


def differences(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Where the package has more than is allowed, and where the allowance can shrink."""
    return [
        f"{name}: {found.get(name, 0)}, allowed {allowed.get(name, 0)}"
        for name in sorted({*found, *allowed})
        if found.get(name, 0) != allowed.get(name, 0)
    ]


def test_banned_words_are_gone():
    assert differences(word_counts(), ALLOWED["words"]) == [], REMEDY


def test_public_names_have_one_meaning(modules):
    assert differences(name_counts(modules), ALLOWED["names"]) == [], REMEDY


@pytest.mark.parametrize("text", ["was told", "told_of", "toldOf", "ToldOf", "`_asked`", "NOBODY", "odd", "x=odd,"])
def test_the_rule_sees(text):
    assert count_banned(text) == 1


@pytest.mark.parametrize("text", ["wholehearted", "oddly", "untold", "modded", "tasks", "masks", "body", "retells"])
def test_other_words_pass(text):
    assert count_banned(text) == 0


if __name__ == "__main__":
    from tests.architecture.conftest import PACKAGE, Module

    every_module = [Module.read(path) for path in sorted(PACKAGE.rglob("*.py"))]
    left = {"words": word_counts(), "names": name_counts(every_module)}
    ALLOWANCES.write_text(json.dumps(left, indent=1) + "\n", encoding="utf-8")
