"""`paragan sweep`: its runs, what it starts, and which of them continue."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.core.interrupt import Interrupt
from paragan.runs.sweep import history_of, is_complete, run_sweep
from paragan.runs.sweep_grid import expand_grid
from paragan.runs.sweep_page import save_sweep_page
from paragan.runs.sweep_plan import Sweep, SweepRun
from tests.processes import ROOT
from tests.tiny_run import SMALL

# Stands in for `paragan launch … --out FOLDER`: a finished run whose score is its setting `x`.
PROGRAM = """
import json, os, sys
folder = sys.argv[sys.argv.index("--out") + 1]
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
kimg, score = float(words["train.kimg"]), float(words["x"])
os.makedirs(folder, exist_ok=True)
open(os.environ["STARTS"], "a").write(f"{os.path.basename(folder)} {kimg:g}\\n")
code = int(os.environ.get("CODE_" + words["x"], "0"))
place = {"step": int(kimg * 10), "kimg": kimg, "seconds": 1.0}
entry = {"kind": "score", **place, "fd": score, "num_images": 9, "protocol": {}, "directions": {"fd": -1}}
with open(os.path.join(folder, "metrics.jsonl"), "a") as file:
    file.write(json.dumps({"kind": "step", **place}) + "\\n" + json.dumps(entry) + "\\n")
json.dump({"code": code, "step": int(kimg * 10), "reason": "ended"}, open(os.path.join(folder, "exit.json"), "w"))
open(os.path.join(folder, "config.yaml"), "w").write(f"x: {score}\\n")
sys.exit(code)
"""


class StandIn(Sweep):
    """A sweep that starts the stand-in."""

    def command(self, run: SweepRun, kimg: float) -> list[str]:
        real = super().command(run, kimg)
        return [sys.executable, "-c", PROGRAM, *real[5:], f"train.kimg={kimg:g}"]


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """The runs that have been started, with their lengths."""
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    (tmp_path / "starts").touch()
    return lambda: sorted((tmp_path / "starts").read_text().splitlines())


def sweep(folder: Path, values: str, **options) -> Sweep:
    common, runs = expand_grid([f"x={values}"], ())
    return StandIn("digits", common, runs, folder / "sweep", 8.0, **options)


def run(plan: Sweep) -> int:
    return run_sweep(plan, Interrupt(), lambda line: save_sweep_page(plan))


def test_grid_has_a_run_for_each_combination():
    words = ["g.optimizer.lr=1e-4,2e-4", "penalties=[r1,r2]", "model={a: 1, b: 2},dcgan", "name='a,b'"]
    common, runs = expand_grid(words, (0, 7))
    assert common == ("penalties=[r1,r2]", "name='a,b'")
    assert len(runs) == 8
    assert runs[0].settings == ("g.optimizer.lr=1e-4", "model={a: 1, b: 2}", "seed=0")
    assert runs[-1] == SweepRun("g.optimizer.lr-2e-4_model-dcgan_seed-7", runs[-1].settings)


@pytest.mark.parametrize("words", [["x=1"], ["x=1,1"], ["x=/a,a/"], ["x=" + ",".join(map(str, range(1001)))]])
def test_grid_that_is_no_sweep_is_refused(words):
    with pytest.raises(ConfigError):
        expand_grid(words, ())


def test_same_command_starts_only_what_has_not_finished(tmp_path, starts, monkeypatch):
    monkeypatch.setenv("CODE_2", "75")
    assert run(sweep(tmp_path, "1,2,3", jobs=2)) == 75
    assert starts() == ["x-1 8", "x-2 8", "x-3 8"]
    monkeypatch.delenv("CODE_2")
    assert run(sweep(tmp_path, "1,2,3")) == 0
    assert starts() == ["x-1 8", "x-2 8", "x-2 8", "x-3 8"]
    assert run(sweep(tmp_path, "1,2,3")) == 0
    assert len(starts()) == 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"settings": ("train.batch=16",)}, "train.batch"),
        ({"settings": ()}, "train.batch"),
        ({"recipe": "cifar10"}, "the recipe"),
        ({"halving_kimg": 2.0}, "--halving"),
        ({"kimg": 4.0}, "train.kimg"),
    ],
)
def test_sweep_with_other_common_settings_is_refused_in_the_same_folder(tmp_path, starts, options, named):
    former = replace(sweep(tmp_path, "1,2"), settings=("train.batch=32", "train.kimg=8"))
    assert run(former) == 0
    plan = (former.folder / "sweep.json").read_bytes()
    with pytest.raises(ConfigError, match=f"another value of {named}; .*use another --out DIR$"):
        run(replace(former, **options))
    assert (former.folder / "sweep.json").read_bytes() == plan
    assert len(starts()) == 2


def test_sweep_with_longer_or_further_runs_continues(tmp_path, starts):
    former = replace(sweep(tmp_path, "1,2"), settings=("train.kimg=8",))
    assert run(former) == 0
    runs = sweep(tmp_path, "1,2,3").runs
    assert run(replace(former, runs=runs, settings=("train.kimg=16",), kimg=16.0)) == 0
    assert starts() == ["x-1 16", "x-1 8", "x-2 16", "x-2 8", "x-3 16"]


def test_failed_run_does_not_end_the_others(tmp_path, starts, monkeypatch):
    monkeypatch.setenv("CODE_1", "2")
    assert run(sweep(tmp_path, "1,2,3")) == 2
    assert len(starts()) == 3


def test_halving_trains_the_better_half_to_twice_the_length(tmp_path, starts, monkeypatch):
    monkeypatch.setenv("CODE_1", "2")  # the best score, of a run that diverged
    plan = sweep(tmp_path, "1,2,3,4,5", halving_kimg=1.0)
    assert run(plan) == 0
    first = [f"x-{value} 1" for value in (1, 2, 3, 4, 5)]
    assert starts() == sorted([*first, "x-2 2", "x-3 2", "x-4 2", "x-2 4", "x-3 4", "x-2 8"])
    rungs = json.loads((plan.folder / "sweep.json").read_text())["rungs"]
    assert [(rung["kimg"], rung["selected"]) for rung in rungs] == [
        (1.0, ["x-2", "x-3", "x-4"]),
        (2.0, ["x-2", "x-3"]),
        (4.0, ["x-2"]),
    ]
    assert run(plan) == 0
    assert len(starts()) == 11  # what has ended early stays ended


def test_halving_that_was_stopped_continues_where_it_was(tmp_path, starts, monkeypatch):
    plan = sweep(tmp_path, "1,2,3", halving_kimg=1.0)
    monkeypatch.setenv("CODE_3", "75")
    assert run(plan) == 75
    monkeypatch.delenv("CODE_3")
    assert run(plan) == 0
    assert starts() == ["x-1 1", "x-1 2", "x-1 8", "x-2 1", "x-2 2", "x-3 1", "x-3 1"]


def test_page_lists_all_runs_by_score_and_compares_the_first_15(tmp_path, starts):
    plan = sweep(tmp_path, ",".join(map(str, range(17, 0, -1))), jobs=4)
    assert run(plan) == 0
    rows = save_sweep_page(plan)
    assert [row[0] for row in rows] == [f"x-{value}" for value in range(1, 18)]
    assert rows[0][1:] == ["finished", "8", "fd 1"]
    text = (plan.folder / "sweep.html").read_text()
    assert "All 17 runs of the sweep" in text
    assert "<h1>15 runs</h1>" in text


def test_command_of_a_run_is_one_of_launch(tmp_path):
    plan = Sweep("digits", ("a=1",), (), tmp_path, 8.0, launch=("slurm", "--gpus", "1"), halving_kimg=1.0)
    words = plan.command(SweepRun("x-2", ("x=2",)), 2.0)
    assert words[1:8] == ["-P", "-m", "paragan", "launch", "slurm", "--gpus", "1"]
    assert words[10:] == ["digits", "a=1", "x=2", "train.kimg=2", "--out", str(tmp_path / "x-2")]


def test_run_that_was_only_submitted_ends_the_command_without_an_error(tmp_path, monkeypatch, capsys):
    common, runs = expand_grid(["x=1,2"], ())
    plan = StandIn("digits", common, runs, tmp_path / "sweep", 8.0)
    monkeypatch.setattr(StandIn, "command", lambda *_: [sys.executable, "-c", ""])
    assert run_sweep(plan, Interrupt(), print) == 0
    assert "2 of 2 runs have not finished; run the same command when they have" in capsys.readouterr().out
    assert not is_complete(plan.folder / "x-1", 8.0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("digits", "2 to 1,000 runs, not 1"),
        ("digits train.bach=1,2", "train.bach"),
        ("digits train.kimg=1,2", "train.kimg differs"),
        ("digits --seeds 0-1 --out s3://bucket/x", "a sweep needs a local folder"),
        ("digits --seeds 0-1 --launch 'slurm --ranks x'", "--launch slurm --ranks x: "),
        ("""digits --seeds 0-1 --launch "slurm 'x" """, "--launch slurm 'x: No closing quotation; close the quotation"),
        ("digits --seeds 0-1 --halving 0", "--halving 0 is invalid; pass a number above 0"),
        ("digits --seeds 0-1 --halving nan", "--halving nan is invalid; pass a number above 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *shlex.split(words)]) == 2
    printed = capsys.readouterr()
    assert expected in printed.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sweep_of_real_runs_continues_the_better_one_and_starts_nothing_twice(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    sizes = ["data.size=8", "train.batch=16", "train.kimg=0.064", "train.threads=1", "every.sample_kimg=0"]
    words = ["digits", *sizes, *SMALL, "evaluation.num_images=64", "g.optimizer.lr=1e-4,2e-3"]
    command = ["sweep", *words, "--halving", "0.032", "--jobs", "2", "--out", "sweep"]
    assert main(command) == 0, capfd.readouterr().out
    (rung,) = json.loads(Path("sweep/sweep.json").read_text())["rungs"]
    (best,) = rung["selected"]
    assert rung["scores"][best] == min(rung["scores"].values())
    lengths = {name: history_of(Path("sweep") / name).kimg for name in rung["runs"]}
    assert lengths == {name: 0.064 if name == best else 0.032 for name in rung["runs"]}
    assert "All 2 runs of the sweep" in Path("sweep/sweep.html").read_text()
    capfd.readouterr()
    assert main(command) == 0
    assert "starting" not in capfd.readouterr().out


@pytest.mark.parametrize(("target", "program"), [("slurm", "squeue"), ("kubernetes", "kubectl")])
def test_run_that_is_still_queued_is_not_submitted_again(tmp_path, starts, monkeypatch, capsys, target, program):
    class Submitted(Sweep):
        def command(self, run, kimg):
            return [sys.executable, "-c", f"open({str(tmp_path / 'starts')!r}, 'a').write('{run.name}\\n')"]

    queue = tmp_path / "queue"
    (tmp_path / program).write_text(f'#!/bin/sh\ncase "$*" in *$(cat {queue})*) echo 7 ;; esac\n')
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    plan = sweep(tmp_path, "1,2", launch=(target,))
    plan = Submitted(**vars(plan))
    queue.write_text("none")
    assert run(plan) == 0
    assert starts() == ["x-1", "x-2"]
    queue.write_text(plan.job_name(plan.runs[0]))
    assert run(plan) == 0
    assert starts() == ["x-1", "x-2", "x-2"]
    assert "queued: x-1\n" in capsys.readouterr().out
    (tmp_path / program).write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(ConfigError, match=f"{program} does not say which jobs wait: no controller"):
        run(plan)


def test_sweep_help_describes_the_folder_and_the_seeds_of_a_sweep(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["sweep", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: runs/RECIPE-sweep)" in text
    assert "Each combination of settings is trained once with each." in text
    assert "object store" not in text
