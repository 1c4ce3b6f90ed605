"""`paragan compare`: settings that differ, scores that compare or do not, samples at the same kimg, and bad input."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from paragan.cli.main import main
from paragan.report.comparison import read_comparison
from paragan.report.comparison_page import render_comparison_page
from paragan.report.page import Page
from paragan.report.panels import _metric_curves, best_evaluation
from paragan.report.record import open_record
from paragan.report.terminal import render_run, summary_line
from paragan.report.terminal_comparison import comparison_json
from tests.browser import made_run, made_runs
from tests.browser.made_run import line
from tests.unit.report.test_report import LINES

PROTOCOL = {"extractor": "judge", "reference": {"split": "train", "num_images": 4000}}


def run(folder: Path, *lines: dict, config: str = "seed: 0\n") -> Path:
    """A run of which only the config and the record exist."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def score(step: int, value: float, num_images: int = 2000, protocol: object = PROTOCOL, **values: object) -> dict:
    return line("score", step, **{"fd[judge]": value}, num_images=num_images, protocol=protocol, **values)


def chart_lines(page: str) -> dict[str, list[str]]:
    """Labels of the lines of every chart of a metric, by its title."""
    figures = re.findall(r'data-chart="metric-\d+">.*?<h3[^>]*>(.*?)</h3>(.*?)</figure>', page, re.S)
    return {title: re.findall(r'data-line="(.*?)"', figure) for title, figure in figures}


def test_settings_that_differ_are_listed_with_absent_ones(tmp_path):
    first = run(tmp_path / "a", config="g: {lr: 2e-4, groups: []}\nseed: 1\nloss: hinge\n")
    second = run(tmp_path / "b", config="g: {lr: 4e-4, groups: []}\nseed: '1'\nloss: hinge\nextra: {x: [1, 2]}\n")
    found = read_comparison([first, second])
    assert found.setting_differences == [
        ("extra.x", ["–", "[1, 2]"]),
        ("g.lr", ["0.0002", "0.0004"]),
        ("seed", ["1", '"1"']),  # a number and a text
    ]


@pytest.mark.parametrize("config", ["a: &b [1]\n", "\x00", "- 1\n", "a: " + "[" * 99])
def test_a_config_that_cannot_be_read_is_left_out_with_a_warning(tmp_path, config):
    folders = [run(tmp_path / name, config=text) for name, text in (("a", "x: 1"), ("b", config), ("c", "x: 2"))]
    found = read_comparison(folders)
    assert found.setting_differences == [("x", ["1", "–", "2"])]
    assert "B has no readable config.yaml; its settings are not compared." in found.warnings


LINE = json.dumps(score(2, 5.0)) + "\n"
RECORDS = {
    "missing": (None, "B has no readable record (metrics.jsonl)."),
    "empty": ("", "B has no readable record (metrics.jsonl)."),
    "cut in its first line": (LINE[:40], "B has no readable record (metrics.jsonl)."),
    "noise": ("\x00\x01\n[1, 2]\nnull\n", "B has no readable record (metrics.jsonl)."),
    "damaged": (LINE + '{"kind": "score", "step": "x"}\n[1]\n' + LINE, "B has 2 unreadable lines in its record"),
    "still written to": (LINE + LINE[:40], ""),
}


@pytest.mark.parametrize("damage", RECORDS)
def test_a_record_that_cannot_be_read_is_said_and_the_rest_of_it_is_compared(damage, tmp_path):
    text, expected = RECORDS[damage]
    folders = [run(tmp_path / name, score(2, 4.0)) for name in ("a", "b")]
    (folders[1] / "metrics.jsonl").unlink()
    if text is not None:
        (folders[1] / "metrics.jsonl").write_text(text)
    found = read_comparison(folders)
    assert [line[: len(expected)] for line in found.warnings] == ([expected] if expected else [])
    assert [run.history.num_scores for run in found.runs] == [1, (text or "").count(LINE)]
    said = expected.removeprefix("B has ").rstrip(".")
    record = open_record(folders[1])
    assert ("The run has" in Page(folders[1]).render()) == bool(expected)
    record.read()
    console = Console(file=io.StringIO(), width=110)
    console.print(render_run(folders[1], record.history))
    for shown in (Page(folders[1]).render(), console.file.getvalue(), summary_line(folders[1], record.history)):
        assert said in shown


def test_best_values_of_one_protocol_compare_with_their_intervals(tmp_path):
    first = run(tmp_path / "a", score(2, 5.0, intervals={"fd[judge]": [4.5, 5.5]}), score(4, 7.0))
    second = run(tmp_path / "b", score(2, 9.0), score(4, 6.0, intervals={"fd[judge]": [6.5, 5.5]}))
    found = read_comparison([first, second])
    (row,) = found.scores
    assert [value.value for value in row.values] == [5.0, 6.0] and row.best == 0 and row.compares
    assert [value.interval for value in row.values] == [(4.5, 5.5), None]  # ends in the wrong order
    assert [value.last for value in row.values] == [7.0, 6.0]
    assert found.protocol_differences == [] and found.warnings == []
    assert chart_lines(render_comparison_page(found)) == {"fd[judge]": ["A", "B"]}


@pytest.mark.parametrize(
    ("other", "field", "texts"),
    [
        ({"num_images": 400}, "num_images", ["2000", "400"]),
        ({"protocol": {**PROTOCOL, "extractor": "other"}}, "extractor", ["judge", "other"]),
        ({"protocol": {"extractor": "judge"}}, "reference.split", ["train", "–"]),
    ],
)
def test_scores_by_different_protocols_never_share_a_chart_and_none_is_the_best(tmp_path, other, field, texts):
    first = run(tmp_path / "a", score(2, 5.0))
    second = run(tmp_path / "b", score(2, 1.0, **other))
    found = read_comparison([first, second, run(tmp_path / "c", score(2, 4.0))])
    (row,) = found.scores
    assert row.best is None and not row.compares
    assert dict(found.protocol_differences)[field] == texts
    assert found.protocol_names == ["protocol 1 (A, C)", "protocol 2 (B)"]
    (warning,) = found.warnings
    assert field in warning and "do not compare" in warning
    page = render_comparison_page(found)
    assert chart_lines(page) == {"fd[judge], protocol 1": ["A", "C"], "fd[judge], protocol 2": ["B"]}
    assert page.count("≠ protocol") == 3
    assert f"<code>{field}</code></th><td>{texts[0]}</td><td>{texts[1]}</td>" in page


COVERAGE = {"split": "held_out", "num_images": 360, "k": 5}


@pytest.mark.parametrize(
    "sections",
    [
        {"coverage": COVERAGE},
        {"coverage": COVERAGE, "mypkg.metrics": {"k": 1}, "kid": {"num_images": 10_000}},
        {"real": {"split": "held_out", "num_images": 7}},
    ],
)
def test_values_compare_where_another_metric_alone_was_measured_otherwise(tmp_path, sections):
    first = run(tmp_path / "a", score(2, 5.0))
    second = run(tmp_path / "b", score(2, 4.0, protocol={**PROTOCOL, **sections}, coverage=0.5))
    found = read_comparison([first, second])
    fd = found.scores[0]
    assert fd.best == 1 and fd.compares and found.warnings == [] and found.protocols == [{}]
    assert chart_lines(render_comparison_page(found))["fd[judge]"] == ["A", "B"]


@pytest.mark.parametrize("name", ["coverage", "mypkg.nice"])
def test_metric_with_other_settings_does_not_compare_while_others_do(tmp_path, name):
    scores = [score(2, 5.0, protocol={**PROTOCOL, name: {**COVERAGE, "k": k}}, **{name: k / 10}) for k in (5, 3)]
    found = read_comparison([run(tmp_path / folder, one) for folder, one in zip("ab", scores, strict=True)])
    fd, other = found.scores
    assert fd.compares and other.metric == name and not other.compares and other.best is None
    assert found.protocol_differences == [(f"{name}.k", ["5", "3"])]
    assert [value.protocol for value in fd.values] == [0, 0] and [value.protocol for value in other.values] == [0, 1]
    charts = chart_lines(render_comparison_page(found))
    assert charts == {"fd[judge]": ["A", "B"], f"{name}, protocol 1": ["A"], f"{name}, protocol 2": ["B"]}


def test_curve_and_best_value_of_a_run_go_on_where_a_metric_is_added(tmp_path):
    added = score(4, 3.0, protocol={**PROTOCOL, "coverage": COVERAGE}, coverage=0.5)
    record = open_record(run(tmp_path / "a", score(2, 1.0), added))
    record.read()
    scores = record.history.scores
    (curve,) = _metric_curves("fd[judge]", scores)
    assert [point.value for point in curve.points] == [1.0, 3.0] and best_evaluation("fd[judge]", scores).step == 2


def test_protocol_that_changes_within_a_run_splits_its_curve(tmp_path):
    changed = run(tmp_path / "a", score(2, 1.0, num_images=400), score(4, 5.0), score(6, 6.0))
    found = read_comparison([changed, run(tmp_path / "b", score(2, 5.5))])
    (row,) = found.scores
    assert [value.value for value in row.values] == [5.0, 5.5] and row.best == 0  # not 1.0 of another protocol
    titles = {"fd[judge], protocol 1": ["A"], "fd[judge], protocol 2": ["A", "B"]}
    assert chart_lines(render_comparison_page(found)) == titles


def test_curve_of_many_evaluations_covers_the_whole_run(tmp_path):
    folders = [run(tmp_path / name, *(score(step, 9.0) for step in range(900))) for name in "ab"]
    page = render_comparison_page(read_comparison(folders))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    for curve in data["charts"]["metric-0"]:
        steps = data["places"][curve["places"]]["step"]
        assert 80 <= len(steps) <= 200 and sum(step < 450 for step in steps) > 0.4 * len(steps)


def test_command_writes_one_page_of_four_runs_and_prints_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folders = [str(folder) for folder in made_runs.make(tmp_path)]
    assert main(["compare", *folders, "--out", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^D +few +running +204\.8 ", printed, re.M)
    assert re.search(r"^fd\[judge\] +[\d.]+ \[[\d.]+, [\d.]+\] ≠1 .* ≠2", printed, re.M)
    assert re.search(r"^train\.batch +64 +128 +64 +128", printed, re.M) and "train.kimg" not in printed
    assert "warning: Scores by protocol 1 (A, B, C), protocol 2 (D) do not compare" in printed
    page = (tmp_path / "page.html").read_text()
    assert page.count("data-track=") == 4 and printed.splitlines()[-1] == str(tmp_path / "page.html")


def test_json_has_runs_settings_scores_and_protocols(tmp_path, capsys):
    folders = [str(folder) for folder in made_runs.make(tmp_path)]
    assert main(["compare", *folders, "--json", "--out", str(tmp_path / "page.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == (tmp_path / "page.html").stat().st_size
    assert found["runs"]["D"]["name"] == "few" and found["settings"]["seed"] == {"A": "0", "B": "1", "C": "2", "D": "3"}
    fd = found["scores"]["fd[judge]"]
    assert not fd["comparable"] and fd["best"] is None and fd["values"]["D"]["protocol"] == 2
    low, high = fd["values"]["A"]["interval"]
    assert low < fd["values"]["A"]["value"] < high
    assert found["protocols"] == {"num_images": ["2000", "400"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "compare: one run is not a comparison; pass two run folders or more"),
        (["a", "./a"], "compare: a is named twice; pass every run once"),
        (["a"] * 16, "compare: 16 runs are more than 15; pass fewer run folders"),
        (["a", "none"], "none: not a run folder (missing); pass one that `paragan train` has created"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch, capsys, words, message):
    run(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    assert capsys.readouterr().err.strip() == message and not (tmp_path / "compare.html").exists()


@pytest.mark.parametrize("record", LINES)
def test_any_record_gives_a_page_and_a_table(tmp_path, capsys, record):
    folders = [run(tmp_path / name) for name in ("a", "b")]
    (folders[1] / "metrics.jsonl").write_text(record + "\n")
    assert main(["compare", *map(str, folders), "--out", str(tmp_path / "page.html")]) == 0
    found = comparison_json(read_comparison(folders))
    assert "NaN" not in json.dumps(found) and "\x1b" not in capsys.readouterr().out


def test_a_record_of_many_protocols_and_settings_gives_a_small_page(tmp_path):
    scores = [score(step, 1.0, protocol={f"{step}": "x" * 400, "k": step}) for step in range(300)]
    folders = [run(tmp_path / name, *scores, config="".join(f"{name}{n}: 1\n" for n in range(2000))) for name in "ab"]
    page = render_comparison_page(read_comparison(folders))
    assert len(page.encode()) < 2_000_000 and "3,800 more settings differ." in page
    assert page.count('data-chart="metric-') == 48


def test_text_of_the_runs_stays_text(tmp_path):
    bad = "<script>alert(1)</script>"
    folder = run(tmp_path / "<i>x", score(2, 1.0, protocol={bad: bad}), config=f"'{bad}': '{bad}'\n")
    page = render_comparison_page(read_comparison([folder, made_run.make(tmp_path / "b", steps=5)]))
    assert bad not in page and "<i>x" not in page and "&lt;script&gt;" in page
