"""`paragan watch`: a run in the terminal, from its record."""

import io
import itertools
import json
import re
import statistics

import pytest
from rich.console import Console

from paragan.cli import watch as watching
from paragan.cli.watch import watch
from paragan.report.record import Record
from paragan.report.scale import format_number
from paragan.report.series import Series
from paragan.report.terminal import render_run, sparkline, summary_line
from tests.browser import made_grid, made_run
from tests.unit.report.test_report import record


def history(folder):
    reader = Record(folder / "metrics.jsonl")
    reader.read()
    return reader.history


def shown(folder, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render_run(folder, history(folder)))
    return console.file.getvalue()


def one_step(folder, **values):
    """A record of 40 of 100 kimg."""
    start = {"kind": "start", "step": 0, "kimg": 0, "total_kimg": 100}
    return record(folder / "run", *map(json.dumps, (start, {"kind": "step", "step": 1, "kimg": 40.0, **values})))


@pytest.fixture
def run(tmp_path):
    return made_run.make(tmp_path / "run", steps=100, scores=12)


def test_once_shows_the_run_and_ends(run, capsys):
    watch(run, once=True)
    output = capsys.readouterr().out
    for word in ("sngan-zoo", "running", "images/s", "ETA", "data wait", "d/gradient_norm", "fd[judge]", "diversity"):
        assert word in output, word
    assert "writer tensorboard failed" in output and "held-out" in output


def test_best_evaluation_is_marked_and_displayed_even_if_old(tmp_path):
    values = [50.0, 3.25, *(40.0 + n for n in range(20))]
    lines = [made_run.line("score", 100 * n, **{"fd[judge]": v}) for n, v in enumerate(values)]
    output = shown(record(tmp_path / "run", *map(json.dumps, lines)))
    assert "3.25 *" in output and output.count(" *") == 1
    assert "59" in output and "50" not in output.split("kimg")[-1].split("3.25")[0]


def test_text_of_the_run_is_neither_markup_nor_control(run):
    start = made_run.start(100) | {"recipe": "[bold red]x[/bold red]\x1b[2J\x07"}
    made_run.append(run, start, made_run.line("event", 9, text="[link=evil]\x1b]0;title\x07 :smile: [/x]"))
    output = shown(run)
    assert "[bold red]x[/bold red]" in output and "[link=evil]" in output and ":smile:" in output
    assert "\x1b" not in output and "\x07" not in output


def test_run_without_numbers_is_displayed(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {kimg: 12}\n")
    assert "0 kimg" in shown(tmp_path)


def test_the_eta_is_what_is_left_over_the_pace(tmp_path):
    assert "ETA 2 min" in shown(one_step(tmp_path, images_per_s=500.0))  # 60,000 images at 500 a second


def test_off_a_terminal_a_line_at_times_until_the_end(run, monkeypatch, capsys):
    clock = itertools.count(step=4.0)
    monkeypatch.setattr(watching.time, "monotonic", lambda: next(clock))
    pauses = itertools.count()

    def pause(seconds: float) -> None:
        n = next(pauses)
        values = {"d/loss/adversarial": -0.5, "images_per_s": 100.0}
        made_run.append(run, made_run.line("step", 2020 + n, **values))
        if n == 9:
            made_run.append(run, made_run.line("end", 2030, code=0, reason="finished"))

    monkeypatch.setattr(watching.time, "sleep", pause)
    watch(run)
    lines = capsys.readouterr().out.splitlines()
    assert 3 <= len(lines) <= 6  # ten looks, ten seconds between lines
    assert lines[0].startswith("running") and lines[-1].startswith("finished  step 2,030")
    assert all("fd[judge]" in line and line.isascii() for line in lines) and "D loss -0.5" in lines[-1]


def test_a_terminal_is_followed_to_the_end_and_ctrl_c_is_no_error(run, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    monkeypatch.setenv("TERM", "xterm")
    end = made_run.line("end", 2000, code=1, reason="the weights are no longer finite")
    monkeypatch.setattr(watching.time, "sleep", lambda seconds: made_run.append(run, end))
    watch(run)
    assert "the weights are no longer finite" in capsys.readouterr().out
    made_run.append(run, made_run.start(100))  # resumed

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", interrupted)
    watch(run)


@pytest.mark.parametrize(
    "odd", [{"images_per_s": 1e-320}, {"seconds": float("inf")}, {"seconds": float("nan")}, {"images_per_s": 0}]
)
def test_watch_shows_a_run_with_invalid_numbers(tmp_path, odd):
    folder = one_step(tmp_path, **{"d/real": 1.0, **odd})
    assert "40 of 100 kimg" in shown(folder)
    assert summary_line(folder, history(folder)).startswith("running  step 1  40/100 kimg")


def test_sparks_follow_the_values():
    rising, broken = Series(), Series()
    for n in range(8):
        rising.add(n, float(n), float(n))
        broken.add(n, float(n), float("nan"))
    assert sparkline(rising) == "▁▂▃▄▅▆▇█"
    assert sparkline(broken) == "????????" and sparkline(Series()) == ""


def test_grid_view_contains_the_latest_generation(tmp_path):
    folder = made_grid.make(tmp_path / "grid", 2, 3, 5, losses=("minimax", "least_squares", "hinge"))
    newest = history(folder).population.latest
    lines = [re.sub(r"  +", "  ", line).strip() for line in shown(folder).splitlines()]
    best = f"generation 5  best cell {newest.best}: {format_number(min(newest.scores))}"
    assert f"{best}  median {format_number(statistics.median(newest.scores))}" in lines
    assert "score/best" in shown(folder) and "\x1b" not in shown(folder)
