"""How messages tell the user to call the program: by words that work in that shell."""

import re
import shlex
import sys

import pytest

from paragan.cli.main import main
from paragan.core.command import absolute_command, program_command


@pytest.fixture
def empty_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_me_under_the_script_is_how_the_script_was_called(monkeypatch):
    monkeypatch.setenv("PARAGAN_COMMAND", "a checkout/run")
    assert program_command() == "'a checkout/run'"


def test_me_with_paragan_on_path_is_paragan(monkeypatch, empty_path):
    monkeypatch.delenv("PARAGAN_COMMAND")
    (empty_path / "paragan").touch(mode=0o755)
    assert program_command() == "paragan"


def test_me_without_paragan_on_path_is_this_python(monkeypatch, empty_path):
    monkeypatch.delenv("PARAGAN_COMMAND")
    assert program_command() == f"{sys.executable} -m paragan"


@pytest.mark.parametrize("folder", ["env/bin", "my env/bin"])
def test_me_in_an_environment_that_is_not_active_is_the_script_as_called(folder, monkeypatch, empty_path):
    monkeypatch.delenv("PARAGAN_COMMAND")
    script = empty_path / folder / "paragan"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.chdir(empty_path)
    monkeypatch.setattr(sys, "argv", [f"{folder}/paragan", "train"])
    assert shlex.split(program_command()) == [f"{folder}/paragan"]
    assert shlex.split(absolute_command()) == [str(script)]


@pytest.mark.parametrize("script", ["nowhere/paragan", "mine.py"])
def test_me_in_a_program_of_the_user_is_this_python(script, monkeypatch, empty_path):
    monkeypatch.delenv("PARAGAN_COMMAND")
    (empty_path / "mine.py").touch()
    monkeypatch.chdir(empty_path)
    monkeypatch.setattr(sys, "argv", [script])
    assert program_command() == absolute_command() == f"{sys.executable} -m paragan"


@pytest.mark.parametrize(
    ("command", "expected"), [("../run", "/above/run"), ("/else/run", "/else/run"), ("paragan", "paragan")]
)
def test_from_anywhere_is_absolute_where_it_is_a_path(command, expected, monkeypatch, tmp_path):
    (tmp_path / "above" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above" / "here")
    monkeypatch.setenv("PARAGAN_COMMAND", command)
    assert absolute_command() == expected.replace("/above", f"{tmp_path}/above")


@pytest.mark.parametrize("words", [["tarin"], ["eval"], ["train", "digit"], ["eval", "nowhere"], ["sample", "nowhere"]])
def test_messages_call_the_program_as_the_user_did(words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARAGAN_COMMAND", "./run")
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "`./run " in error
    assert "paragan" not in error


def test_help_describes_every_verb_in_a_whole_sentence(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    main(["--help"])
    _, _, verbs = capsys.readouterr().out.partition("Commands:\n")
    assert verbs.count("\n") >= 15
    assert [line for line in verbs.splitlines() if line.strip() and not re.search(r"[^.]\.$", line)] == []
