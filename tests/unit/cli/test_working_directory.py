"""The working directory is searched for modules last: a file there never replaces a library."""

import subprocess
import sys

import pytest

from tests.processes import environment
from tests.tiny_run import train

PLANTED = ("jinja2", "PIL", "torch", "secrets", "yaml", "numpy", "safetensors", "typer", "pydantic", "typing", "json")
INSTALLED = "from paragan.__main__ import entry; entry()"  # what the installed command runs


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A run folder in a working directory where modules named like libraries lie."""
    folder = tmp_path_factory.mktemp("foreign")
    train(folder / "run")
    for name in PLANTED:
        (folder / f"{name}.py").write_text(
            f"open('{name}.ran', 'w')\nraise SystemExit('the planted {name} was imported')\n"
        )
    return folder


@pytest.mark.parametrize("verb", [("report", "run"), ("sample", "run"), ("config", "digits")])
def test_planted_modules_in_the_working_directory_are_not_imported(foreign, verb):
    done = ran(foreign, "-P", "-c", INSTALLED, *verb)
    assert [path.name for path in foreign.glob("*.ran")] == []
    assert done.returncode == 0, done.stderr


def test_python_m_paragan_moves_the_working_directory_to_the_end(foreign):
    """Without -P Python itself has put it first; what is imported from then on is not found there."""
    (foreign / "typing.py").rename(foreign / "typing.kept")  # imported with the package, before its first line
    done = ran(foreign, "-m", "paragan", "report", "run")
    assert [path.name for path in foreign.glob("*.ran")] == []
    assert done.returncode == 0, done.stderr


def test_a_local_module_with_a_name_of_its_own_is_found(foreign):
    (foreign / "local_nets.py").write_text("")
    done = ran(
        foreign,
        "-P",
        "-c",
        f"import sys; sys.argv[1:] = ['--version']\ntry:\n {INSTALLED}\nexcept SystemExit:\n import local_nets",
    )
    assert done.returncode == 0, done.stderr


def ran(folder, *words):
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
