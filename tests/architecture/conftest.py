"""The sources of the project, parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "paragan"


@dataclass(frozen=True)
class Module:
    """One file; `floor` is its first folder in the package, or its own name at the top; of an extension its name."""

    path: Path
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Module:
        text = path.read_text(encoding="utf-8")
        return cls(path, text, ast.parse(text, str(path)))

    @property
    def floor(self) -> str:
        parts = self.path.relative_to(PACKAGE).parts
        is_of_extension = parts[0] == "extensions" and len(parts) > 2
        return parts[1] if is_of_extension else parts[0].removesuffix(".py")

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes, which two dozen tests look at."""
        return list(ast.walk(self.tree))

    @cached_property
    def code(self) -> list[ast.AST]:
        """All nodes but docstrings and other bare strings, which are prose."""
        return without_prose(self.nodes)


def without_prose(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    nodes = list(nodes)
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [node for node in nodes if id(node) not in prose]


def last_name(node: ast.AST) -> str:
    """`c` of the expressions `c` and `a.b.c`; nothing of others."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Trees of a whole package are half a million objects, which collections of garbage would visit again and again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    """Every Python file of the package."""
    with _no_garbage():
        found = [Module.read(path) for path in sorted(PACKAGE.rglob("*.py"))]
        assert all(module.nodes for module in found)  # walked here, too
    assert found, "the package is not where this test looks for it"
    return found


@pytest.fixture(scope="session")
def project_files() -> list[Path]:
    """Every file of ours: package, tests, examples, benchmarks."""
    folders = (PACKAGE, *(ROOT / name for name in ("tests", "examples", "benchmarks")))
    return sorted(p for f in folders for p in f.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
