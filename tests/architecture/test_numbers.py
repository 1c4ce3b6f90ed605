"""Numbers of the source tree, printed by `pytest -s`: a target each, and a limit that only falls towards it."""

from __future__ import annotations

import ast

import pytest

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LIMITS = {  # name -> (target, limit now)
    "lines": (32_000, 76_500),
    "lines over 100 columns, %": (3.0, 3.0),
    "files over 300 lines": (0, 0),
    "files over 250 lines": (5, 5),
    "90th percentile of function lines": (16, 16),
    "public definitions without a docstring, %": (10.0, 10.0),
    "comprehensions with two `for`s": (0, 0),
    "parallel assignments that could be separate": (0, 0),
}


@pytest.fixture(scope="module")
def measured(modules) -> dict[str, float]:
    lines = [line for module in modules for line in module.text.splitlines()]
    lengths = [module.text.count("\n") for module in modules]
    functions = sorted(node.end_lineno - node.lineno + 1 for module in modules for node in _functions(module.tree))
    public = [node for module in modules for node in _public(module.tree)]
    undocumented = sum(ast.get_docstring(node) is None for node in public)
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    return {
        "lines": len(lines),
        "lines over 100 columns, %": 100 * sum(len(line) > 100 for line in lines) / len(lines),
        "files over 300 lines": sum(length > 300 for length in lengths),
        "files over 250 lines": sum(length > 250 for length in lengths),
        "90th percentile of function lines": functions[int(0.9 * len(functions))],
        "public definitions without a docstring, %": 100 * undocumented / len(public),
        "comprehensions with two `for`s": sum(len(getattr(node, "generators", ())) > 1 for node in nodes),
        "parallel assignments that could be separate": sum(map(_could_be_separate, nodes)),
    }


@pytest.mark.parametrize("name", LIMITS)
def test_number_does_not_exceed_its_limit(measured, name):
    target, limit = LIMITS[name]
    print(f"\n{name}: {measured[name]:,.1f} (target {target:,})")
    assert measured[name] <= limit


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _public(node: ast.AST) -> list[ast.AST]:
    """Public functions and classes of a module, and public methods of those classes."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINITIONS) and not child.name.startswith("_"):
            found.append(child)
            found += _public(child) if isinstance(child, ast.ClassDef) else []
        elif not isinstance(child, DEFINITIONS):
            found += _public(child)
    return found


def _could_be_separate(node: ast.AST) -> bool:
    """Whether a statement is `a, b = x, y`, and y does not read a: then it could be two statements."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
        return False
    (target, *_) = node.targets
    if not isinstance(target, ast.Tuple):
        return False
    assigned = {ast.unparse(element) for element in target.elts}
    read = {
        ast.unparse(part) for value in node.value.elts[1:] for part in ast.walk(value) if isinstance(part, ast.expr)
    }
    return not assigned & read
