"""The words after `train` and `config`: options of other trainers, run folders, `~`."""

import re

import pytest

from paragan.cli.main import expand_home, main
from paragan.cli.run_arguments import load_config
from paragan.config.sections import ANY
from paragan.core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("verb", ["train", "config"])
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--lr", "1e-4"], "--lr is not an option of VERB; use g.optimizer.lr=1e-4 d.optimizer.lr=1e-4"),
        (["--lr", "--fresh"], "--lr is not an option of VERB; use g.optimizer.lr=VALUE d.optimizer.lr=VALUE"),
        (["digits", "--seed", "3"], "--seed is not an option of VERB; use seed=3"),
        (["--epochs", "5"], "use train.kimg=K, thousands of images: K = 5 x number of images / 1000"),
        (["--device", "cpu"], "leave it out; an accelerator is used where one is visible, else the CPU; devices=N "),
        (["--resume"], "leave it out; the same command resumes"),
        (["digits", "--dry-run"], "leave it out; `config` instead of `train` checks and prints every setting"),
        (["--train.kimg=5"], "--train.kimg is not an option of VERB; use train.kimg=5"),
        (["--loss"], "--loss is not an option of VERB; use loss=VALUE"),
        (["-x"], "-x is not an option of VERB; settings are written key.path=value; `paragan config` prints them all"),
    ],
)
def test_unknown_option_suggests_the_setting(verb, words, answer, capsys):
    assert main([verb, *words]) == 2
    out, error = capsys.readouterr()
    assert answer.replace("VERB", verb) in error
    assert (out, error.count("\n")) == ("", error.count("is not an option of"))


@pytest.mark.parametrize("words", [["--lr", "-3"], ["--lr", "-.5", "--batch-size", "4"], ["--a", "--b=-1", "--c"]])
def test_every_unknown_option_is_named_once_and_a_negative_number_is_a_value(words, capsys):
    assert main(["train", *words]) == 2
    named = [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert named == [word.partition("=")[0] for word in words if word.startswith("--")]


def test_misspelled_option_suggests_the_right_one(capsys):
    assert main(["train", "--frehs"]) == 2
    assert capsys.readouterr().err == "--frehs is not an option of train; did you mean --fresh?\n"


def test_run_folder_is_read_as_its_config(here, capsys):
    main(["config", "digits", "train.batch=7"])
    text = capsys.readouterr().out
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "config.yaml").write_text(text)
    assert main(["config", "elsewhere"]) == 0
    assert capsys.readouterr().out == text
    assert main(["config", "elsewhere/", "train.batch=8"]) == 0
    assert "batch: 8" in capsys.readouterr().out


def test_recipe_takes_precedence_over_a_folder_of_its_name(here, capsys):
    (here / "digits").mkdir()
    assert main(["config", "digits"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["my photos", "./photos.old", "a.b"])
def test_folder_without_a_run_suggests_training_on_it(name, here, capsys):
    (here / name).mkdir()
    assert main(["train", name]) == 2
    quoted = f"'{name}'" if " " in name else name
    assert capsys.readouterr().err == (
        f"{name} is a folder without config.yaml, so it is not a run to resume; to train on images in it: "
        f"paragan train own data.path={quoted}\n"
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("~/runs/a", "/home/me/runs/a"),
        ("~", "/home/me"),
        ("--out=~/runs/a", "--out=/home/me/runs/a"),
        ("data.path=~/x", "data.path=~/x"),  # a setting: the config knows which are paths
        ("a~b", "a~b"),
    ],
)
def test_expand_home_in_arguments_and_options(word, expected, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home(word) == expected


def test_short_help_option_prints_help(capsys):
    assert main(["train", "-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: paragan train ")


def test_a_refusal_whose_cure_is_trust_names_no_other_command(here):
    (here / "mine.py").write_text("from paragan.losses.hinge import loss as loss\n")
    (here / "recipe.yaml").write_text("format: 1\ndata: {name: digits}\nmodel: {name: mlp}\nloss: {name: mine.py}\n")
    with pytest.raises(ConfigError) as caught:
        load_config("recipe.yaml", [], ())
    assert "--trust" in str(caught.value) and "paragan config" not in str(caught.value)
    load_config("recipe.yaml", [], ANY)  # what --trust passes


def test_a_refusal_without_a_command_names_that_which_lists_the_settings(here, capsys):
    assert main(["train", "digits", "train.batchsize=3"]) == 2
    command = re.findall(r"`paragan ([^`]+)`", capsys.readouterr().err)
    assert command == ["config digits"]
    assert main(command[0].split()) == 0
