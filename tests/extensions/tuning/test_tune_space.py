"""Ranges of settings that `tune` varies, and what it refuses before any trial."""

import shlex

import pytest

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.extensions.tuning.space import Dimension, parse_ranges, parse_space

RATE = "g.optimizer.lr=log:1e-5..1e-3"


def test_words_with_ranges_are_dimensions_and_the_others_are_settings():
    words = [RATE, "loss.gamma=0..1.5", "model.width=int:16..64", "loss=hinge,r3", "penalties=[r1,r2]", "name='a,b'"]
    fixed, dimensions = parse_space([*words, "data.path=../images", "train.batch=8"])
    assert fixed == ("penalties=[r1,r2]", "name='a,b'", "data.path=../images", "train.batch=8")
    assert dimensions == (
        Dimension("g.optimizer.lr", "log", (1e-5, 1e-3)),
        Dimension("loss.gamma", "float", (0.0, 1.5)),
        Dimension("model.width", "int", (16.0, 64.0)),
        Dimension("loss", "choice", choices=("hinge", "r3")),
    )
    assert [one.extremes for one in dimensions] == [(1e-5, 1e-3), (0.0, 1.5), (16, 64), ("hinge", "r3")]


def test_distributions_are_those_of_the_ranges():
    _, dimensions = parse_space([RATE, "a=-1..1", "b=int:2..3", "c=x,y", "d=.1..1."])
    log, plain, whole, choice, short = (one.distribution for one in dimensions)
    assert (short.low, short.high) == (0.1, 1)
    assert (log.low, log.high, log.log) == (1e-5, 1e-3, True)
    assert (plain.low, plain.high, plain.log) == (-1, 1, False)
    assert (whole.low, whole.high, choice.choices) == (2, 3, ("x", "y"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["train.batch=8"], "give it a range, such as"),
        ([RATE, RATE], "g.optimizer.lr is given twice; give it one range or value"),
        (["train.kimg=int:1..2"], "trials of different lengths do not compare"),
        (["a=2..1"], "a=2..1 is empty; give the smaller number first"),
        (["a=1..1"], "a=1..1 is a single value; write a=1, or a greater end"),
        (["a=log:1e-3..0.001"], "is a single value; write a=0.001"),
        (["a=log:0..1"], "log: is for numbers above 0; raise 0"),
        (["a=int:1..2.5"], "int: is for whole numbers"),
        (["a=log:1..x"], "'x' is not a number; write a range as"),
        (["a=log:1e-400..1e999"], "'1e999' is not a number"),
        (["a=1...5"], "a range has two dots"),
        (["a=int:1...5"], "a range has two dots"),
        (["a=uniform:0,1"], "a=uniform:0,1 is not a range; write one as"),
        (["a=log:1e-3,1e-2"], "a=log:1e-3,1e-2 is not a range; write one as"),
        (["a=x,,y"], "a value is empty or given twice"),
        (["a=x,y,x"], "a value is empty or given twice"),
    ],
)
def test_range_without_values_is_refused(words, problem):
    with pytest.raises(ConfigError) as refused:
        parse_space(words)
    assert problem in str(refused.value)


def test_plain_value_among_the_ranges_of_a_program_is_refused():
    with pytest.raises(ConfigError, match=r"tune: train.batch=8 is not a range; write one as"):
        parse_ranges({"g.optimizer.lr": "log:1e-5..1e-3", "train.batch": "8"})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("digits", "tune needs a setting to vary"),
        ("digits train.bach=1..2", "train.bach"),
        ("digits g.optimizer.lr=-1..1", "g.optimizer.lr"),
        ("digits loss=hinge,hing", "hing"),
        (f"digits {RATE} --goal fdd", "goal fdd is not a metric; did you mean 'fd'?"),
        (f"digits {RATE} --goal xyz", "goal xyz is not a metric; choose one of "),
        (f"digits {RATE} --goal diversity", "diversity"),
        (f"digits {RATE} evaluation.features=null", "evaluation.features=null switches them off"),
        (f"digits {RATE} evaluation.metrics=coverage", "add it to evaluation.metrics"),
        (f"digits {RATE} --sampler grid", "g.optimizer.lr has a range; write g.optimizer.lr=a,b,c"),
        (f"digits {RATE} --kimg 0", "train.kimg"),
        (f"digits {RATE} --out s3://bucket/x", "a study needs a local folder"),
        (f"digits {RATE} devices=2", "devices"),
        (f"cellular-mnist {RATE}", "tune trains pairs of networks"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_before_any_trial(words, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *shlex.split(words)]) == 2
    printed = capsys.readouterr()
    assert problem in printed.err and not list(tmp_path.iterdir())
