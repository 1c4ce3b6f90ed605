"""`paragan new`: what it writes trains, passes its own test and is read as a config; unfit names are refused."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest
import yaml

import paragan
from paragan.cli.main import main
from paragan.cli.new import FILES, new
from paragan.core.errors import ConfigError
from paragan.extensions.verify import laws
from paragan.extensions.verify.reference_run import exact_arithmetic
from paragan.extensions.verify.verify_networks import VerifyRequest, verified_networks

pytestmark = pytest.mark.usefixtures("here")
SOURCES = str(Path(paragan.__file__).parents[1])


@pytest.fixture(autouse=True)
def _nobody_has_imported_mine(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "mygan")]:
        monkeypatch.delitem(sys.modules, name)


def python(*words):
    environment = os.environ | {"PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.usefixtures("quick_judge")
def test_what_it_writes_trains_at_once(here, monkeypatch, capfd):
    new("mine")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds the folder to it
    capfd.readouterr()
    assert main(["train", "mine/recipe.yaml", "train.kimg=0.128", "evaluation.num_images=50"]) == 0
    assert capfd.readouterr().err == ""
    assert list((here / "runs" / "mine" / "samples").glob("*.png"))


def test_its_own_test_passes_as_a_program(here, monkeypatch, capfd):
    new("mine")
    monkeypatch.syspath_prepend(here)
    run_path("mine/test_nets.py", run_name="__main__")
    assert capfd.readouterr().out.splitlines()[-1:] == ["passed"]


@pytest.mark.slow  # the same test as above
def test_its_own_test_passes_under_pytest():
    new("mine")
    tested = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "mine")
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


@pytest.mark.parametrize(
    ("name", "stands", "instead", "message"),
    [
        ("same", "self.layers(z)", "self.layers(0 * z + 1)", "every latent gives the same image"),
        ("still", "self.layers(x)", "0 * self.layers(x)", "some weights never move"),
    ],
)
@pytest.mark.filterwarnings("ignore:model. Generator.forward.* do not depend on:UserWarning")
@pytest.mark.filterwarnings("ignore:model. Discriminator.forward.* gradient is 0:UserWarning")
def test_its_own_test_can_fail(name, stands, instead, message, here, monkeypatch):
    new(name)
    nets = (here / name / "nets.py").read_text()
    assert stands in nets
    (here / name / "nets.py").write_text(nets.replace(stands, instead))
    monkeypatch.syspath_prepend(here)
    (own,) = [thing for word, thing in vars(import_module(f"{name}.test_nets")).items() if word.startswith("test_")]
    with pytest.raises(AssertionError, match=message):
        own()


def test_new_in_another_folder_prints_commands_that_work_from_here(here, monkeypatch, capsys):
    monkeypatch.setenv("PARAGAN_COMMAND", "./run")
    (here / "run").write_text('#!/bin/sh\necho "$PWD: $*"; test -f "$2"\n')
    (here / "run").chmod(0o755)
    assert main(["new", "mine", "--dir", "my work"]) == 0
    _, _, change, _, train, *_ = capsys.readouterr().out.splitlines()
    done = subprocess.run(["sh", "-ec", f"{change}\n{train}"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{here / 'my work'}: train mine/recipe.yaml\n", done.stderr
    assert done.returncode == 0


def test_its_networks_hold_what_one_process_can_tell(here, monkeypatch):
    new("lawful")
    monkeypatch.syspath_prepend(here)
    tried = verified_networks(VerifyRequest(target="lawful.nets", overrides=("model.width=4",), shape=(1, 8, 8)))
    with exact_arithmetic():
        rows = list(laws.run_laws(tried, (laws.stopping, laws.one_is_none)))
    assert {row.result for row in rows} == {"held"}


def test_the_name_stands_in_every_file_and_the_template_in_none(here):
    new("mine", here / "there")
    texts = {name: (here / "there" / "mine" / name).read_text() for name in FILES}
    assert not [name for name, text in texts.items() if "mygan" in text or "mine" not in text]
    recipe = yaml.safe_load(texts["recipe.yaml"])
    assert (recipe["model"]["name"], recipe["loss"]["name"]) == ("mine.nets", "mine.loss")
    assert texts["nets.py"].count("\n") <= 60


@pytest.mark.parametrize("name", ["my-gan", "1st", "class", "_mine", "größe", "a.b", "../up", "", "json", "torch"])
def test_a_name_that_cannot_be_imported_is_refused(name, here):
    with pytest.raises(ConfigError, match=r"is not a package name|is an existing Python module"):
        new(name)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("there", ["mine", "mine.py"])
def test_what_exists_is_left_alone(there, here):
    (here / there).write_text("precious")
    with pytest.raises(ConfigError, match="exists already and was not changed"):
        new("mine")
    assert (here / there).read_text() == "precious"
