"""Seeded mutants: one small fault in each of several random files; how many do the tests find?

    python -m tests.mutation.mutants --seed 7 --num 40

Each fault is put into a copy of the checkout. First the tests that import the module run, then its folder of tests,
then contracts and laws. A mutant is killed if a test fails, or hangs, that passes without the fault.
"""

import argparse
import ast
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.checkout_copy import CheckoutCopy
from tests.processes import ROOT

PACKAGE = Path("src/paragan")
TIMEOUT_S = 300  # of one call of pytest
MAX_IMPORTERS = 10

_COMPARE = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault: `path:line`, and the whole text of the file with it."""

    path: Path
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutants_of(text: str, path: Path) -> list[Mutant]:
    """Every fault of the kinds above in the functions of a file."""
    return [_mutant(text, path, node, after) for node, after in _candidates(text)]


def _mutant(text: str, path: Path, node: ast.AST, after: str) -> Mutant:
    return Mutant(path=path, line=node.lineno, before=ast.unparse(node), after=after, text=_replaced(text, node, after))


def _candidates(text: str) -> list[tuple[ast.AST, str]]:
    return [
        (node, after)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in _code(statement)
        for after in _faults(node)
    ]


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the function does, outermost first: no annotations, messages or functions."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.JoinedStr | ast.Raise):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)


def _faults(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            yield f"({ast.unparse(left)} {_COMPARE[type(op)]} {ast.unparse(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left, right):
            yield f"(({ast.unparse(left)}) {_ARITHMETIC[type(op)]} ({ast.unparse(right)}))"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield "(" + word.join(f"({ast.unparse(value)})" for value in values) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "return None"


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        for node in nodes
    )


def _replaced(text: str, node: ast.AST, after: str) -> str:
    lines = text.encode().splitlines(keepends=True)  # columns of `ast` are bytes
    first, last = node.lineno - 1, node.end_lineno - 1
    head = b"".join(lines[:first]) + lines[first][: node.col_offset]
    tail = lines[last][node.end_col_offset :] + b"".join(lines[last + 1 :])
    return (head + after.encode() + tail).decode()


def draw_mutants(seed: int, num: int) -> list[Mutant]:
    """One fault in each of `num` random files of the package."""
    rng = random.Random(seed)
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    rng.shuffle(files)
    mutants = []
    for file in files:
        candidates = _candidates(text := file.read_text()) if len(mutants) < num else []
        if candidates:
            mutants.append(_mutant(text, file.relative_to(ROOT), *rng.choice(candidates)))
    return mutants


def tests_of(path: Path) -> list[list[str]]:
    """The tests to run, in this order, until one fails."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    module = ".".join(("paragan", *parts)).removesuffix(".__init__")
    parent, _, name = module.rpartition(".")
    imported = re.compile(rf"{re.escape(module)}\b|from {re.escape(parent)} import .*\b{re.escape(name)}\b")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    importers = [str(file.relative_to(ROOT)) for file in files if imported.search(file.read_text())]
    importers.sort(key=lambda file: (parts[-1] not in file, "unit" not in file))
    folder = Path("tests", *parts[:2]) if parts[0] == "extensions" else Path("tests/unit", parts[0])
    wider = [[str(folder)]] if (ROOT / folder).is_dir() else []
    return [importers[:MAX_IMPORTERS], *wider, ["tests/contract", "tests/golden"], ["tests/laws"], ["tests/unit/cli"]]


def killer(copy: CheckoutCopy, mutant: Mutant) -> str | None:
    """The test that finds the fault; `timeout` if one hangs; None if all pass, or fail without it as well."""
    for tests in filter(None, tests_of(mutant.path)):
        (copy.folder / mutant.path).write_text(mutant.text)
        failed = _first_failure(copy, tests)
        copy.restore(mutant.path)
        if failed and _first_failure(copy, tests if failed == "timeout" else [failed]) is None:
            return failed
    return None


def _first_failure(copy: CheckoutCopy, tests: list[str]) -> str | None:
    words = ["-m", "not slow and not gpu and not browser", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        run = copy.run("pytest", *words, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "timeout"
    if run.returncode in (0, 4, 5):  # 5: all of them are slow; 4: no such name, as it has a " - "
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", run.stdout, re.MULTILINE)
    return failed[1] if failed else tests[0]


def survivors(seed: int, num: int, start: int = 0) -> list[Mutant]:
    """Prints a line per mutant; returns those that no test finds."""
    alive = []
    with tempfile.TemporaryDirectory() as folder:
        copy = CheckoutCopy(Path(folder))
        for mutant in draw_mutants(seed, num)[start:]:
            test = killer(copy, mutant)
            print(f"killed by {test}: {mutant}" if test else f"SURVIVES: {mutant}", flush=True)
            if test is None:
                alive.append(mutant)
    return alive


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--num", type=int, default=40)
    parser.add_argument("--start", type=int, default=0, metavar="N", help="pass over the first N")
    options = parser.parse_args()
    num = options.num - options.start
    print(f"{num - len(survivors(options.seed, options.num, options.start))} of {num} killed")
