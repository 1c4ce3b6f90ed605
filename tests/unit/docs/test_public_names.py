"""The public names of `paragan` are known to type checkers, and are those of a config."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import paragan
from paragan import build
from paragan.cli.main import main
from paragan.config import choose
from paragan.core import registry
from tests.processes import environment

NAMES = sorted(name for name in dir(paragan) if not name.startswith("__"))


NOUNS = ("Player", "Turn", "Opponent", "Strategy", "Scheme", "Cell", "Plan")
FAMILIES = {"penalties": "Penalty", "schemes": "Scheme", "parallel": "Strategy", "augment": "Augment"}
FAMILIES["balancers"] = "Balancer"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_is_public(noun):
    assert getattr(paragan, noun).__name__ == noun


@pytest.mark.parametrize("category", FAMILIES)
def test_every_file_of_a_family_has_a_public_name(category):
    public = {(getattr(paragan, name).__module__, getattr(paragan, name).__name__) for name in NAMES if _is_named(name)}
    for name in paragan.list_names(category):
        module = registry.load_module(category, name).__name__
        kinds = {(module, kind) for kind in (FAMILIES[category], "step")}
        assert kinds & public or hasattr(paragan, f"{name.title().replace('_', '')}{FAMILIES[category]}"), name


def _is_named(name):
    return hasattr(getattr(paragan, name), "__name__")


@pytest.mark.parametrize("name", paragan.list_names("losses"))
def test_public_losses_are_those_of_a_config(name):
    loss = getattr(paragan, f"{name}_loss")
    if not isinstance(loss, paragan.Loss):
        loss = loss(getattr(paragan, f"{name.title().replace('_', '')}Options")())
    configured = build.adversarial(choose("losses", name))
    for field in ("g_needs_real", "compares", "needs"):
        assert getattr(loss, field) == getattr(configured, field), name
    real, fake = torch.randn(2, 8).unbind()
    whole = (real, fake) if loss.compares else ()
    other = (fake, real) if loss.compares else ()
    assert torch.equal(loss.d(real, fake, *whole), configured.d(real, fake, *whole)), name
    assert torch.equal(loss.g(fake, real, *other), configured.g(fake, real, *other)), name


def test_names_of_a_category_are_those_of_the_command_line(capsys):
    assert main(["list", "models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == paragan.list_models()
    assert paragan.list_models("*2") == ["stylegan2"]
    assert "digits" in paragan.list_recipes()
    with pytest.raises(paragan.ConfigError, match=r"unknown category 'model'; choose one of models,"):
        paragan.list_names("model")


def test_import_paragan_does_not_import_torch():
    words = "import sys, paragan; dir(paragan); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", words], check=True, timeout=60)


def test_mypy_infers_the_type_of_every_public_name(tmp_path):
    pytest.importorskip("mypy")
    lines = ["import paragan as pg", *(f"reveal_type(pg.{name})" for name in [*NAMES, "config"])]
    (tmp_path / "names.py").write_text("\n".join(lines) + "\n")
    root = Path(paragan.__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), str(tmp_path / "names.py")]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    revealed = re.findall(r"names.py:(\d+): note: Revealed type is (.+)", ended.stdout)
    assert len(revealed) == len(NAMES) + 1, ended.stdout
    assert [lines[int(line) - 1] for line, kind in revealed if kind == '"Any"'] == []


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("losses/sharp.py", "from paragan.losses.hinge import loss as loss\n", "sharp_loss"),
        ("losses/soft.py", "from paragan.losses.nonsaturating import Options as Options\n", "SoftOptions"),
        ("penalties/sharp_edge.py", "from paragan.penalties.r1 import Penalty as Penalty\n", "SharpEdgePenalty"),
        ("schemes/twice.py", "from paragan.schemes.shared_fakes import Scheme as Scheme\n", "TwiceScheme"),
    ],
)
def test_a_new_file_of_a_registry_has_a_public_name_without_another_edit(tmp_path, file, text, name):
    shutil.copytree(Path(paragan.__file__).parent, tmp_path / "paragan", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "paragan" / file).write_text(text)
    code = f"import paragan; print(paragan.{name}); paragan.WrongPenalty"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert ended.stdout.startswith(("<class 'paragan.", "<paragan.", "Loss(")), ended.stderr
    assert "module 'paragan' has no attribute 'WrongPenalty'" in ended.stderr


def test_help_of_the_package_fits_on_two_screens_and_says_where_all_names_are():
    import pydoc

    text = pydoc.plain(pydoc.render_doc(paragan))
    assert text.count("\n") < 100
    assert "docs/reference/api.md describes all of them, `dir(paragan)` lists them" in " ".join(text.split())
