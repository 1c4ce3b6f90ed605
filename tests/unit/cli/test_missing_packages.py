"""An installation without a required package: one line that says how to install it."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from paragan.__main__ import entry
from paragan.cli import doctor, main
from paragan.hardware import installation

ROOT = Path(__file__).resolve().parents[3]
MODULES = ("PIL", "annotated_types", "jinja2", "numpy", "pydantic", "safetensors", "torch", "typer", "yaml")


def fail_by(monkeypatch, module):
    def main_without_it():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(main, "main", main_without_it)


@pytest.mark.parametrize("module", MODULES)
def test_entry_without_a_required_package_names_it_in_one_line(module, monkeypatch, capsys):
    package = {"PIL": "pillow", "annotated_types": "annotated-types", "yaml": "pyyaml"}.get(module, module)
    fail_by(monkeypatch, module)
    with pytest.raises(SystemExit) as ended:
        entry()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f" -m pip install {package}") and sys.executable in line


@pytest.mark.parametrize("module", ["paragan.nowhere", "torch.nowhere", "mine"])
def test_entry_without_any_other_module_raises(module, monkeypatch):
    fail_by(monkeypatch, module)
    with pytest.raises(ModuleNotFoundError, match=re.escape(module)):
        entry()


def test_modules_are_those_of_the_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(MODULES) == len(project["dependencies"]) == len(installation.requirements())


@pytest.mark.parametrize(("is_installed", "fast"), [(False, False), (True, True), (True, False)])
def test_doctor_checks_devices_only_with_torch(is_installed, fast, monkeypatch):
    examined = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if is_installed else None)
    monkeypatch.setattr(doctor, "examine", lambda checks: examined.extend(checks) or ())
    with pytest.raises(doctor.typer.Exit):
        doctor.doctor(as_json=True, fast=fast)
    assert set(examined) == {*doctor.ALWAYS, *(doctor.WITH_TORCH if is_installed and not fast else ())}
