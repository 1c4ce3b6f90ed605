"""No scheme is known by its name outside of its folder: what others need of one is a method of `Scheme`."""

import ast

import pytest

from paragan.core import registry
from tests.architecture.conftest import PACKAGE

# the default of the key `scheme`, which the schema must have
DEFAULTS = {"config/run_config.py": 1}


def named(tree: ast.Module, names: set[str]) -> list[str]:
    """Constants that are one of these names, or a setting with one as value; prose is none."""
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
    settings = {f"{key}={name}" for key in ("scheme", "scheme.name") for name in names}
    return [text for text in texts if text in names or settings & set(text.split())]


def test_no_scheme_is_known_by_its_name(modules):
    names = set(registry.names("schemes"))
    found = {}
    for module in modules:
        path = module.path.relative_to(PACKAGE)
        if "schemes" not in path.parts and (texts := named(module.tree, names)):
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
    assert len(named(ast.parse(code), {"skipping"})) == number
