"""A reader of standard output that exits, as `| head` does: training goes on, other commands end without a word."""

import json
import os
import sys
from contextlib import contextmanager

import pytest

from paragan.cli.main import main
from tests.browser import made_run

TINY = (
    *("data.size=8", "train.batch=16", "train.kimg=0.032", "train.threads=1", "evaluation.features=null"),
    *("model.width=4", "every.sample_kimg=0", "every.save_kimg=0"),
)


@contextmanager
def closed_output():
    """Replace standard output by a pipe that nobody reads; pytest sets it anew before each test."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    before = (sys.stdout, sys.__stdout__)
    with os.fdopen(write_end, "w") as output:
        sys.stdout = sys.__stdout__ = output
        try:
            yield output
        finally:
            sys.stdout, sys.__stdout__ = before


def test_training_goes_on_and_is_recorded_as_finished(tmp_path, capfd):
    with closed_output() as output:
        assert main(["train", "digits", *TINY, "--out", str(tmp_path / "run")]) == 0
        assert sys.stdout is output
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["reason"] == "finished"
    assert "console" not in capfd.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["config", "digits"], ["list", "recipes", "--json"]])
def test_commands_that_print_end_with_their_code(words, capfd):
    with closed_output():
        assert main(words) == 0
    assert capfd.readouterr().err == ""


def test_commands_that_fail_have_their_code(capfd):
    with closed_output():
        assert main(["list", "nothing"]) == 2
    assert "unknown category" in capfd.readouterr().err


@pytest.mark.timeout(60)
def test_watch_of_a_run_that_trains_ends_with_its_reader(tmp_path, capfd):
    run = str(made_run.make(tmp_path / "run", steps=5))
    with closed_output():
        assert main(["watch", run]) == 0
    assert capfd.readouterr().err == ""


def test_pipe_of_another_process_that_breaks_is_no_end_of_the_output(monkeypatch):
    def broken(name):
        raise BrokenPipeError("a worker")

    monkeypatch.setattr("paragan.core.registry.descriptions", broken)
    with closed_output(), pytest.raises(BrokenPipeError, match="a worker"):
        main(["list", "recipes"])


def test_output_of_a_program_is_left_alone(capsys):
    assert main(["list", "schemes"]) == 0
    assert "asynchronous" in capsys.readouterr().out
