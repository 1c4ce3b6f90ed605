"""Own package of a run, as `paragan new` writes one, that lies elsewhere now: `--code DIR`, known by its content."""

import importlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.core.outside_code import changed_code, code_fingerprints, source_files
from tests.unit.runs.test_moved_code import VERBS


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run, and with its package in another folder than when it was trained."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "old").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [entry for entry in sys.path if entry])
        patch.syspath_prepend(folder / "old")
        patch.chdir(folder / "old")
        assert main(["new", "mygan"]) == 0
        short = ["train.batch=4", "train.kimg=0.008", "train.threads=1", "evaluation.features=null"]
        assert main(["train", "mygan/recipe.yaml", *short, "--out", str(folder / "run")]) == 0
    _forget("mygan")
    (folder / "old").rename(folder / "new place")
    return folder


@pytest.fixture
def moved_package(trained, tmp_path, monkeypatch):
    """The new folder of a package, as `paragan new` writes it, whose recipe has trained a run."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield Path("new place")
    _forget("mygan")


def _forget(package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.mark.parametrize("verb", ["sample", "export", "resume", "replay"])
def test_moved_package_opens_by_its_folder_if_its_content_is_that_of_the_run(moved_package, verb, capsys):
    words = [word.replace("kimg=0.024", "kimg=0.016") for word in VERBS[verb]]
    assert main([*words, "--trust"]) == 2
    error = capsys.readouterr().err
    assert "mygan" in error and "--code DIR" in error
    assert main([*words, "--code", "new place"]) == 0


def test_resume_of_a_moved_package_prints_commands_that_run(moved_package, capsys):
    assert main(["train", "run", "train.kimg=0.016", "--code", "new place"]) == 0
    printed = re.findall(r"paragan (\S.*--code .*?)(?:  +#.*)?$", capsys.readouterr().out, re.MULTILINE)
    assert [line.split()[0] for line in printed] == ["sample", "export", "train"]
    for line in printed:
        _forget("mygan")
        assert main(shlex.split(line)) == 0


@pytest.mark.parametrize("file", ["nets.py", "loss.py", "__init__.py"])
def test_moved_package_that_has_changed_needs_trust(moved_package, file, capsys):
    changed = moved_package / "mygan" / file
    module = f"mygan.{changed.stem}".removesuffix(".__init__")
    changed.write_text(f"{changed.read_text()}\nassert __debug__\n")
    assert main([*VERBS["sample"], "--code", "new place"]) == 2
    error = capsys.readouterr().err
    assert "sha256" in error and "pass --trust" in error and module not in sys.modules
    assert main([*VERBS["sample"], "--code", "new place", "--trust"]) == 0


@pytest.mark.parametrize("folder", ["run", "new place/mygan"])
@pytest.mark.parametrize("trust", [[], ["--trust"]])
def test_a_folder_without_the_package_says_so(moved_package, folder, trust, capsys):
    assert main([*VERBS["sample"], "--code", folder, *trust]) == 2
    error = capsys.readouterr().err
    assert f"there is no mygan/nets.py in --code {folder}" in error and "folder that mygan lies in" in error


@pytest.mark.parametrize("file", ["nets.py", "loss.py"])
def test_resume_says_that_its_code_has_changed(moved_package, file, capsys):
    """Also where `--trust` was passed before, as printed commands have it."""
    command = ["train", "run", "--code", "new place", "--trust"]
    assert main([*command, "train.kimg=0.012"]) == 0
    assert "code has changed" not in "".join(capsys.readouterr())
    changed = moved_package / "mygan" / file
    changed.write_text(f"{changed.read_text()}\nassert __debug__\n")
    _forget("mygan")
    assert main([*command, "train.kimg=0.016"]) == 0
    output = "".join(capsys.readouterr())
    assert f"warning: code has changed since the run used it: mygan.{changed.stem}" in output


def test_another_package_of_that_name_is_not_imported(moved_package, monkeypatch, capsys):
    """It comes first on the import path, so it is what would be imported."""
    Path("elsewhere/mygan").mkdir(parents=True)
    for name in ("__init__.py", "nets.py"):
        Path(f"elsewhere/mygan/{name}").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend("elsewhere")
    assert main([*VERBS["sample"], "--code", "new place"]) == 2
    assert "elsewhere/mygan/nets.py is not a file that the run has used" in capsys.readouterr().err


def test_exported_file_of_a_package_opens_by_its_folder(moved_package, capsys):
    assert main([*VERBS["export"], "--code", "new place"]) == 0
    sys.path.remove(str(moved_package.resolve()))
    _forget("mygan")
    command = ["sample", "exported/generator.safetensors", "--num", "2", "--code"]
    assert main([*command, "run"]) == 2
    assert main([*command, "new place"]) == 0


def test_code_that_a_run_has_not_used_before_is_not_said_to_have_changed(tmp_path):
    for name in ("writer.py", "nets.py"):
        (tmp_path / name).write_text(f"NAME = {name!r}")
    used = {"/elsewhere/nets.py": code_fingerprints([str(tmp_path / "nets.py")]).popitem()[1]}
    names = [str(tmp_path / "writer.py"), str(tmp_path / "nets.py")]
    assert changed_code(names, used) == [] and changed_code(names, {}) == []
    (tmp_path / "nets.py").write_text("NAME = None")
    assert changed_code(names, used) == [str(tmp_path / "nets.py")]


@pytest.mark.parametrize("layout", ["a/__init__.py a/b/__init__.py", "a/b/__init__.py", "a/__init__.py", ""])
def test_files_of_a_module_are_those_that_its_import_runs(layout, tmp_path, monkeypatch):
    """Packages with and without an `__init__.py`; nothing is imported to know."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in [*layout.split(), "a/b/nets.py"]:
        (tmp_path / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    files = source_files("a.b.nets")
    assert "a" not in sys.modules
    importlib.import_module("a.b.nets")
    ran = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "a"}
    assert {name: str(path) for name, path in files.items()} == {name: file for name, file in ran.items() if file}
    _forget("a")


@pytest.mark.parametrize("name", ["../x.nets", "/etc.nets", "a..nets", "a.b-c", "."])
def test_names_that_are_no_dotted_path_have_no_files(name):
    assert source_files(name) == {}
