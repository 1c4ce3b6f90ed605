"""Names tell what is inside: no catch-alls, short words, at most two folders deep."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "paragan"
CATCH_ALL = {"util", "utils", "helper", "helpers", "common", "misc"}
MODULE = re.compile(r"_{0,2}[a-z][a-z0-9]*(_[a-z0-9]+){0,3}_{0,2}")
RECIPE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def test_nothing_is_a_catch_all(project_files):
    named = {p: {word.strip("_") for word in (*p.relative_to(ROOT).parts, p.stem)} for p in project_files}
    assert [str(p) for p, words in named.items() if words & CATCH_ALL] == []


def test_files_are_named_by_words(modules):
    assert [str(m.path) for m in modules if not MODULE.fullmatch(m.path.stem)] == []


def test_recipes_are_named_as_one_types_them():
    assert [p.name for p in (PACKAGE / "recipes").glob("*.yaml") if not RECIPE.fullmatch(p.stem)] == []


def test_folders_are_at_most_two_deep(modules):
    paths = [module.path.relative_to(PACKAGE) for module in modules]
    in_rooms = {path: path.parts[2:] if path.parts[0] == "extensions" else path.parts[1:] for path in paths}
    assert [str(path) for path, parts in in_rooms.items() if len(parts) > 2] == []
