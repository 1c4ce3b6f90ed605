"""A file whose name begins with `_` is private to its room: no other room imports it."""

from __future__ import annotations

import ast

import pytest

OPEN = {  # (room, private file): to be moved to the room's sub-package `base`; may only shrink
    ("datasets", "_options"),
}


def private_imports(room: str, tree: ast.AST) -> set[tuple[str, str]]:
    """Room and name of each private file of another room that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paragan."):
            _, other, *inner = (node.module or "").split(".")
            names = inner or [alias.name for alias in node.names]
            found |= {(other, name) for name in names if name.startswith("_") and other != room}
    return found


def test_no_room_imports_a_private_file_of_another(modules):
    found = {pair for module in modules for pair in private_imports(module.floor, module.tree)}
    assert found - OPEN == set(), "move it to the sub-package `base` of its room"
    assert OPEN - found == set(), "no longer needed here"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("from paragan.features._extractor import FeatureExtractor", 1),
        ("from paragan.features import _extractor", 1),
        ("from paragan.features.base.extractor import FeatureExtractor", 0),
        ("from paragan.metrics._codes import CodebookMetric", 0),  # its own room
        ("from __future__ import annotations", 0),
    ],
)
def test_the_rule_sees(line, number):
    assert len(private_imports("metrics", ast.parse(line))) == number
