"""`allowances.json`: lines and `Any`s of each room, which may only fall; and two plain numbers of the style.

A number is raised by a commit of its own, which changes that file alone and adds a line to its `raised`:
"2026-11-28 lines.cli 2000 -> 2040: why". Fewer: `python -m tests.architecture.test_allowances` and commit.
"""

import ast
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/architecture/allowances.json"
SLACK = 60  # lines of a room that may be free, so that a mend does not need a raise
MAX_FUNCTION_P90 = 16
MAX_UNDOCUMENTED = 0.10
RAISE = re.compile(r"20\d\d-\d\d-\d\d (?P<key>\w+\.\w+) (?P<before>\d+) -> (?P<after>\d+): \S.{10,}")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def measure(modules: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Lines and `Any`s by room."""
    lines: Counter[str] = Counter()
    anys: Counter[str] = Counter()
    for module in modules:
        room = "root" if module.path.parent.name == "paragan" else module.floor
        lines[room] += module.text.count("\n")
        anys[room] += sum(isinstance(node, ast.Name) and node.id == "Any" for node in module.nodes)
    return {"lines": dict(sorted(lines.items())), "any": dict(sorted(anys.items()))}


def problems(measured: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]]) -> Iterator[str]:
    """One line for each number above its allowance, and for each allowance that can shrink."""
    for kind, slack in (("lines", SLACK), ("any", 0)):
        for room in sorted(measured[kind].keys() | allowed[kind].keys()):
            number, most = measured[kind].get(room, 0), allowed[kind].get(room, 0)
            if number > most:
                yield f"{kind}.{room}: {number}, allowed {most}"
            elif number < most - slack:
                yield f"{kind}.{room}: {number}; lower the allowance of {most}"


def raised_numbers(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The numbers that a version of the file raises; those of a room that it did not have count as 0."""
    pairs = {}
    for kind in ("lines", "any"):
        for room, number in after[kind].items():
            former = before[kind].get(room, 0)
            if number > former:
                pairs[f"{kind}.{room}"] = (former, number)
    return pairs


def unexplained(before: dict[str, Any], after: dict[str, Any], files: list[str]) -> list[str]:
    """What is wrong with a commit that changes the file: other files beside a raise, or a raise without a reason."""
    raised = raised_numbers(before, after)
    if not raised:
        return []
    reasons = set(after.get("raised", [])) - set(before.get("raised", []))
    parsed = {
        match["key"]: (int(match["before"]), int(match["after"])) for match in map(RAISE.fullmatch, reasons) if match
    }
    found = [f"{key} {pair[0]} -> {pair[1]} has no reason" for key, pair in raised.items() if parsed.get(key) != pair]
    return found + [f"changes {name} too" for name in files if name != FILE]


@pytest.fixture(scope="module")
def allowed() -> dict[str, Any]:
    return json.loads((ROOT / FILE).read_text(encoding="utf-8"))


def test_rooms_keep_their_allowances(modules, allowed):
    assert list(problems(measure(modules), allowed)) == []


def test_a_raise_is_a_commit_of_its_own_with_a_reason():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not run: needs git and the history of the project")
    log = git("log", "--format=%x00%H", "--no-merges", "--name-only", "--full-diff", "--", FILE)
    commits = {commit: files for commit, *files in map(str.split, log.split("\0")[1:])}
    versions = versions_of(place for commit in commits for place in (f"{commit}~1", commit))
    wrong = {}
    for commit, files in commits.items():
        before, after = versions[f"{commit}~1"], versions[commit]
        if before is not None and after is not None:  # else the commit adds the file, or removes it
            wrong[commit[:8]] = unexplained(before, after, files)
    assert {commit: found for commit, found in wrong.items() if found} == {}
    assert len(wrong) >= len(commits) - 1


@pytest.mark.parametrize(
    ("before", "after", "files", "number"),
    [
        ({"a": 9}, {"a": 8}, [FILE, "src/x.py"], 0),
        ({"a": 9}, {"a": 10}, [FILE], 1),
        ({"a": 9}, {"a": 10}, [FILE, "src/x.py"], 2),
        ({"a": 9}, {"a": 9, "b": 1}, [FILE], 1),
    ],
)
def test_the_rule_sees(before, after, files, number):
    wrap = {"any": {}}
    assert len(unexplained({"lines": before} | wrap, {"lines": after} | wrap, files)) == number


def test_a_reason_explains_a_raise():
    reason = "2026-11-28 lines.a 9 -> 10: a reader of another format"
    before = {"lines": {"a": 9}, "any": {}}
    assert unexplained(before, {"lines": {"a": 10}, "any": {}, "raised": [reason]}, [FILE]) == []
    assert unexplained(before, {"lines": {"a": 11}, "any": {}, "raised": [reason]}, [FILE]) != []


def test_functions_are_short(modules):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for module in modules for node in module.nodes if isinstance(node, functions)]
    lengths = sorted(node.end_lineno - node.lineno + 1 for node in nodes)
    assert lengths[int(0.9 * len(lengths))] <= MAX_FUNCTION_P90


def test_public_definitions_have_docstrings(modules):
    public = [node for module in modules for node in public_definitions(module.tree)]
    undocumented = sum(ast.get_docstring(node) is None for node in public)
    assert undocumented / len(public) <= MAX_UNDOCUMENTED


def public_definitions(node: ast.AST) -> list[ast.AST]:
    """Public functions and classes of a module, and public methods of those classes."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINITIONS) and not child.name.startswith("_"):
            nodes.append(child)
            nodes += public_definitions(child) if isinstance(child, ast.ClassDef) else []
        elif not isinstance(child, DEFINITIONS):
            nodes += public_definitions(child)
    return nodes


def git(*arguments: str, stdin: str = "") -> str:
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 60, "check": True}
    return subprocess.run(["git", *arguments], input=stdin, **options).stdout


def versions_of(places: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """The file at each of these commits, or None where it is not there; one process reads hundreds of them."""
    places = list(places)
    text = git("cat-file", "--batch", stdin="".join(f"{place}:{FILE}\n" for place in places))
    versions: dict[str, dict[str, Any] | None] = {}
    position = 0
    for place in places:
        end = text.index("\n", position) + 1
        versions[place] = None
        if not text[position:end].endswith(" missing\n"):
            versions[place], end = json.JSONDecoder().raw_decode(text, end)
            end += len("\n\n")  # of the file, and of git after it
        position = end
    return versions


if __name__ == "__main__":
    from tests.architecture.conftest import PACKAGE, Module

    path = ROOT / FILE
    held = json.loads(path.read_text(encoding="utf-8"))
    numbers = measure([Module.read(file) for file in sorted(PACKAGE.rglob("*.py"))])
    # up to the next multiple of 20, so that a mend of some lines is no raise; never above what is allowed
    lines = {room: -(-number // 20) * 20 for room, number in numbers["lines"].items()}
    lowered = {
        kind: {room: min(number, held[kind].get(room, number)) for room, number in rooms.items()}
        for kind, rooms in (("lines", lines), ("any", numbers["any"]))
    }
    path.write_text(json.dumps({**lowered, "raised": held["raised"]}, indent=1) + "\n", encoding="utf-8")
