"""Imports go down only; networks never talk to other ranks; help and config errors never pay for torch."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, timeout=120)


def test_the_contracts_of_the_floors_hold():
    done = python("-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache", "--no-logo")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["paragan", "paragan.__main__", "paragan.cli.main", "paragan.config", "paragan.core.registry"]
)
def test_importing_leaves_torch_alone(module):
    done = python("-c", f"import sys, {module}; sys.exit('torch was imported' if 'torch' in sys.modules else 0)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", ["game/options.py", "engine/options.py", "evaluation/options.py"])
def test_options_that_config_reads_are_plain_data(modules, file):
    (module,) = (m for m in modules if m.path.as_posix().endswith(f"/paragan/{file}"))
    assert {"torch", "pydantic"}.isdisjoint(name.split(".")[0] for name, _ in imports(module))


def test_networks_never_talk_to_the_process_group(modules):
    floors = ("models", "layers", "losses", "penalties")
    swapped_in_by_strategies = ("all_reduce", "cross_rank", "row_exchange", "split")
    talking = [
        m.at(node)
        for m in modules
        if m.floor in floors and m.path.stem not in swapped_in_by_strategies
        for name, node in imports(m)
        if name.startswith(("torch.distributed", "paragan.core.dist"))
    ]
    assert talking == []


def imports(module) -> list[tuple[str, ast.AST]]:
    """Dotted names a file imports, `from a import b` as a.b."""
    found: list[tuple[str, ast.AST]] = []
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return found


@pytest.mark.parametrize("strategy", ["pipeline", "tensor"])
def test_schemes_engine_game_and_models_name_no_strategy(modules, strategy):
    """A strategy is one file: what plays the game and builds networks works under any."""
    found = []
    for module in modules:
        if module.floor not in ("schemes", "engine", "game", "models", "losses", "penalties"):
            continue
        for node in module.code:
            is_name = isinstance(node, ast.Constant) and node.value == strategy
            source = getattr(node, "module", None) or ""
            names = [alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
            is_import = source.startswith("paragan.parallel") and strategy in f"{source} {names}"
            if is_name or is_import:
                found.append(module.at(node))
    assert found == []
