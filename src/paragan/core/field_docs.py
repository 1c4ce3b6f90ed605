"""Meanings of the fields of options: the string literals below them in the source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from functools import cache
from itertools import pairwise


@cache
def meanings(kind: type) -> dict[str, str]:
    """Return field -> meaning of an options class, in one line; fields without one are left out."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if dataclasses.is_dataclass(cls):
            found |= _written(cls)
    return found


def _written(kind: type) -> dict[str, str]:
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:  # created at run time
        return {}
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text(below)):
            found[field.target.id] = " ".join(text.split())
    return found


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""
