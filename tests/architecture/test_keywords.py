"""Calls name what they pass: no field that is added to a dataclass shifts arguments, and mypy sees each of them."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.architecture.conftest import PACKAGE, last_name

MAX_POSITIONAL_FIELDS = 4
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def positional_fields(kind: type) -> list[str]:
    """Fields of a dataclass with more than four that its constructor takes by position."""
    if not dataclasses.is_dataclass(kind) or len(dataclasses.fields(kind)) <= MAX_POSITIONAL_FIELDS:
        return []
    if "__init__" in vars(kind) and not vars(kind).get("__dataclass_fields__"):
        return []  # a constructor of its own
    return [field.name for field in dataclasses.fields(kind) if field.init and not field.kw_only]


def is_fixed_tuple(node: ast.AST) -> bool:
    """Whether it is a tuple of a length that the code shows, from two values on."""
    return (
        isinstance(node, ast.Tuple)
        and len(node.elts) > 1
        and not any(isinstance(element, ast.Starred) for element in node.elts)
    )


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module without those of functions in it."""
    waiting = [*ast.iter_child_nodes(scope)][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting += [*ast.iter_child_nodes(node)][::-1]


def hidden_arguments(every: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of arguments that a tuple or a dict of any values hides from the reader and from mypy."""
    for scope in (node for node in every if isinstance(node, (ast.Module, *FUNCTIONS))):
        nodes = list(own_nodes(scope))
        tuples = {
            node.targets[0].id
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_fixed_tuple(node.value)
        }
        dicts = {
            node.target.id
            for node in nodes
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and ast.unparse(node.annotation) == "dict[str, Any]"
        }
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            for star in (node for node in call.args if isinstance(node, ast.Starred)):
                if is_fixed_tuple(star.value) or (isinstance(star.value, ast.Name) and star.value.id in tuples):
                    yield star.lineno, f"*{ast.unparse(star.value)}"
            for keyword in (node for node in call.keywords if node.arg is None):
                if isinstance(keyword.value, ast.Name) and keyword.value.id in dicts:
                    yield call.lineno, f"**{keyword.value.id}"


def test_dataclasses_of_many_fields_are_built_by_keywords(modules):
    positional = {}
    for module in modules:
        if "@dataclass" not in module.text or "templates" in module.path.parts:  # texts of `new`, not modules
            continue
        name = ".".join(module.path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for kind in vars(importlib.import_module(name)).values():
            if inspect.isclass(kind) and kind.__module__ == name and (names := positional_fields(kind)):
                positional[f"{name}.{kind.__name__}"] = names
    assert positional == {}


def positional_constructions(nodes: Iterable[ast.AST], classes: Collection[str]) -> Iterator[tuple[int, str]]:
    """Line and name of each construction of one of these classes with more than four arguments by position."""
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = last_name(call.func)
        if name in classes and len(call.args) > MAX_POSITIONAL_FIELDS:
            yield call.lineno, name


def test_objects_are_constructed_by_keywords(modules):
    classes = {node.name for m in modules for node in m.nodes if isinstance(node, ast.ClassDef)}
    wrong = [
        f"{m.path.relative_to(PACKAGE)}:{line}: {name}"
        for m in modules
        for line, name in positional_constructions(m.nodes, classes)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("Link(a, b, c, d, e)", 1),
        ("links.Link(a, b, c, d, e)", 1),
        ("Link(a, b, c, d, e=e)", 0),
        ("link(a, b, c, d, e)", 0),
    ],
)
def test_the_rule_sees_constructions(line, number):
    assert len(list(positional_constructions(ast.walk(ast.parse(line)), {"Link"}))) == number


def test_no_tuple_or_dict_hides_arguments(modules):
    hidden = [
        f"{m.path.relative_to(PACKAGE)}:{line}: {text}" for m in modules for line, text in hidden_arguments(m.nodes)
    ]
    assert hidden == []


@dataclass
class Four:
    a: int
    b: int
    c: int
    d: int


@dataclass(kw_only=True)
class Five(Four):
    e: int


@dataclass(kw_only=True)
class All:
    a: int
    b: int
    c: int
    d: int
    e: int


@pytest.mark.parametrize(("kind", "names"), [(Four, []), (Five, ["a", "b", "c", "d"]), (All, [])])
def test_the_rule_sees_positional_fields(kind, names):
    assert positional_fields(kind) == names


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("f(*(a, b))", ["*(a, b)"]),
        ("def g():\n    rest = a, b\n    return f(c, *rest)", ["*rest"]),
        ("def g():\n    rest = (a, *many)\n    return f(*rest)", []),
        ("def g(*rest):\n    return f(*rest)", []),
        ("rest = (a, b)\ndef g(rest):\n    return f(*rest)", []),
        ("def g():\n    rest: dict[str, Any] = {'a': 1}\n    return f(**rest)", ["**rest"]),
        ("def g(**rest: Any):\n    return f(**rest)", []),
    ],
)
def test_the_rule_sees_hidden_arguments(code: str, texts: list[Any]):
    assert [text for _, text in hidden_arguments(ast.walk(ast.parse(code)))] == texts
