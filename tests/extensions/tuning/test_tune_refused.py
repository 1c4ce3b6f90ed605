"""What `paragan tune` refuses before any trial."""

import shlex

import pytest

from paragan.cli.main import main

RATE = "g.optimizer.lr=log:1e-5..1e-1"


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
        (f"digits {RATE} devices=2", "start the same command once for each device"),
        (f"cellular-mnist {RATE}", "tune trains pairs of networks"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_before_any_trial(words, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *shlex.split(words)]) == 2
    printed = capsys.readouterr()
    assert problem in printed.err and not list(tmp_path.iterdir())
