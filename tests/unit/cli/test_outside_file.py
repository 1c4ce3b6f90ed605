"""Networks in a single file next to the recipe that names them."""

import sys
from pathlib import Path

import pytest

import paragan as pg
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from tests import unlabelled_networks

NETS = Path(unlabelled_networks.__file__).read_text(encoding="utf-8")
RECIPE = """data: {name: digits, size: 8}
model: wgan.py
loss: hinge
train: {batch: 8, kimg: 0.016}
every: {sample_kimg: 0, score_kimg: 0}
evaluation: {features: null}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a recipe and its networks; the commands are typed one folder above it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "wgan.py").write_text(NETS)
    (folder / "wgan.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


def test_a_file_next_to_the_recipe_trains_samples_and_exports(project, capsys):
    assert main(["train", "project/wgan.yaml", "--out", "run"]) == 0
    assert main(["sample", "run", "--num", "2"]) == 2
    assert "pass --trust" in capsys.readouterr().err
    assert main(["sample", "run", "--num", "2", "--trust"]) == 0
    assert main(["export", "run", "--out", "there", "--trust"]) == 0
    assert str(project) not in (Path("there") / "README.md").read_text()
    assert str(project).encode() not in (Path("there") / "generator.safetensors").read_bytes()
    assert len(pg.load("run", trust=True).sample(2)) == 2


def test_the_file_of_the_recipe_comes_before_one_in_the_working_directory(project):
    Path("wgan.py").write_text("raise AssertionError('the wrong file')")
    assert read_recipe("project/wgan.yaml").model.name == str(project / "wgan.py")


def test_a_file_may_have_the_name_of_a_module(project):
    (project / "wgan.py").rename(project / "random.py")
    (project / "wgan.yaml").write_text(RECIPE.replace("wgan.py", "random.py"))
    module = registry.load_module("models", read_recipe("project/wgan.yaml").model.name)
    assert module.Generator.latent == 4
    assert sys.modules["random"].__file__ != module.__file__


def test_modules_next_to_the_file_are_found_after_installed_ones(project):
    (project / "sizes.py").write_text("LATENT = 3\n")
    (project / "yaml.py").write_text("raise AssertionError('not the installed one')\n")
    (project / "wgan.py").write_text(f"{NETS}\nimport yaml\nfrom sizes import LATENT\n")
    assert registry.load_module("models", read_recipe("project/wgan.yaml").model.name).LATENT == 3
    assert sys.path[-1] == str(project)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wgan", "wgan.yaml:2: model.name: unknown model 'wgan'; to use the file wgan.py, pass model.name=wgan.py"),
        ("parts.wgan", "cannot import 'parts.wgan'; to use the file parts/wgan.py, pass model.name=parts/wgan.py"),
        ("gan.py", "/gan.py does not exist; give the path of a .py file"),
    ],
)
def test_unknown_name_suggests_the_file_of_that_name(project, name, message):
    (project / "parts").mkdir()
    (project / "parts" / "wgan.py").write_text(NETS)
    (project / "wgan.yaml").write_text(RECIPE.replace("wgan.py", name))
    with pytest.raises(ConfigError) as refusal:
        read_recipe("project/wgan.yaml")
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_loaded_config_imports_no_file_next_to_it(project):
    with pytest.raises(ConfigError, match="pass --trust"):
        read_recipe("project/wgan.yaml", outside=())


def test_a_project_that_was_moved_with_its_run_resumes_and_samples(project, capsys):
    assert main(["train", "project/wgan.yaml", "--out", "project/runs/wgan"]) == 0
    assert "../../wgan.py" in (project / "runs" / "wgan" / "config.yaml").read_text()
    moved = project.rename(project.with_name("elsewhere ü"))
    assert main(["train", f"{moved}/wgan.yaml", "train.kimg=0.032", "--out", f"{moved}/runs/wgan"]) == 0
    assert "resuming at step 2" in capsys.readouterr().out
    assert main(["sample", f"{moved}/runs/wgan", "--num", "2", "--trust"]) == 0
    assert main(["train", f"{moved}/runs/wgan", "train.kimg=0.048", "--trust"]) == 0


def test_a_run_that_was_moved_without_its_code_says_what_is_missing(project, capsys):
    assert main(["train", "project/wgan.yaml", "--out", "run"]) == 0
    (project / "wgan.py").rename(project / "other.py")
    for words in (["sample", "run", "--trust"], ["train", "run", "--trust"], ["export", "run"]):
        capsys.readouterr()
        assert main(words) == 2
        error = capsys.readouterr().err
        assert f"{project / 'wgan.py'} does not exist" in error
        assert "pass --trust" not in error


def test_an_unknown_option_of_own_code_names_its_options(tmp_path, monkeypatch, capsys):
    """Not models of paragan that have an option of that name."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mygan"]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    for word in ("model.blocks_per_stage=3", "model.attention=3"):
        assert main(["train", "mygan/recipe.yaml", word, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert "choose one of name, latent, width" in error and "it belongs to" not in error
