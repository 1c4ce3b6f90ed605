"""The hard limits of the house: 300 lines a file, 40 a function, 7 positional parameters; 20 imports in `build/`."""

import ast

from tests.architecture.conftest import ROOT

FILE, FUNCTION, PARAMETERS = 300, 40, 7
BUILD_IMPORTS = 20


def test_files_fit_on_a_few_screens(project_files):
    lines = {p: p.read_text(encoding="utf-8").count("\n") for p in project_files if p.suffix == ".py"}
    assert {str(p): n for p, n in lines.items() if n > FILE} == {}


def test_functions_fit_on_one_screen(modules):
    long = [
        f"{m.at(f)} {f.name}: {length(f)} lines"
        for m in modules
        for f in functions(m)
        if length(f) > FUNCTION and not (m.floor in ("models", "layers") and f.name == "forward")
    ]
    assert long == []


def test_functions_take_few_positional_parameters(modules):
    many = [f"{m.at(f)} {f.name}: {positional(f)}" for m in modules for f in functions(m) if positional(f) > PARAMETERS]
    assert many == []


def test_files_of_build_import_few_modules(modules):
    many = {str(m.path): len(imports(m)) for m in modules if m.floor == "build" and len(imports(m)) > BUILD_IMPORTS}
    assert many == {}


def imports(module) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("paragan"):
            folder = ROOT / "src" / node.module.replace(".", "/")
            names = [alias.name for alias in node.names]
            found |= {f"{node.module}.{name}" if (folder / f"{name}.py").is_file() else node.module for name in names}
    return found


def functions(module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length(function) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    prose = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
    return function.end_lineno - function.lineno + 1 - prose


def positional(function) -> int:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))
