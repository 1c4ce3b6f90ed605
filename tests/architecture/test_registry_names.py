"""No scheme is known by its name outside of its folder: what others need of one is a method of `Scheme`.

And no file of a registry compares options with its own class: those of a config are of one that was read from the file.
"""

import ast

import pytest

from paragan.core import registry
from tests.architecture.conftest import PACKAGE, last_name, without_prose

# the default of the key `scheme`, which the schema must have
DEFAULTS = {"config/run_config.py": 1}


def named(code: list[ast.AST], names: set[str]) -> list[str]:
    """Constants that are one of these names, or a setting with one as value."""
    texts = [node.value for node in code if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    settings = {f"{key}={name}" for key in ("scheme", "scheme.name") for name in names}
    return [text for text in texts if text in names or settings & set(text.split())]


def test_no_scheme_is_known_by_its_name(modules):
    names = set(registry.names("schemes"))
    found = {}
    for module in modules:
        path = module.path.relative_to(PACKAGE)
        if "schemes" not in path.parts and (texts := named(module.code, names)):
            found[path.as_posix()] = len(texts)
    assert found == DEFAULTS


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ('if scheme.name == "skipping": pass', 1),
        ('raise ValueError("leave it out: scheme=skipping")', 1),
        ('words = ["scheme.name=skipping"]', 1),
        ('"""The scheme skipping."""', 0),
        ('raise ValueError("use the scheme skipping")', 0),
    ],
)
def test_the_rule_sees(code, number):
    assert len(named(without_prose(ast.walk(ast.parse(code))), {"skipping"})) == number


def checks_of_own_options(tree: ast.Module) -> int:
    """`isinstance` and comparisons with a class `Options` that this file defines."""
    if not any(isinstance(node, ast.ClassDef) and node.name == "Options" for node in tree.body):
        return 0
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and last_name(n.func) in ("isinstance", "issubclass")]
    checked = [ast.walk(call.args[1]) for call in calls] + [
        ast.walk(n) for n in ast.walk(tree) if isinstance(n, ast.Compare)
    ]
    return sum(any(isinstance(n, ast.Name) and n.id == "Options" for n in nodes) for nodes in checked)


def test_no_file_of_a_registry_compares_options_with_its_own_class(modules):
    assert [str(module.path) for module in modules if checks_of_own_options(module.tree)] == []


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("if isinstance(options, Options): pass", 1),
        ("if isinstance(options, (int, Options)): pass", 1),
        ("if type(options) is Options: pass", 1),
        ("if isinstance(options, LazyOptions): pass", 0),
        ("def f(options: Options): return options.width", 0),
    ],
)
def test_the_rule_of_options_sees(code, number):
    assert checks_of_own_options(ast.parse(f"class Options: pass\n{code}")) == number
