"""Progress of long commands (lines every ten seconds, or a bar on a terminal), and tables as plain text."""

import pytest

from paragan.cli import progress
from paragan.cli.progress import show_lines, show_progress
from paragan.cli.table import format_table


def test_show_progress_without_a_terminal_prints_a_line_every_ten_seconds(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with show_progress("images") as update:
        for done in range(1, 101):
            now += 0.5
            update(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{done} of 100 images, about {(100 - done) / 2:.0f} s left" for done in (20, 40, 60, 80)]


def test_show_progress_of_a_short_task_prints_nothing(capsys):
    with show_progress("images") as update:
        update(3, 3)
    assert capsys.readouterr().err == ""


@pytest.fixture
def terminal(monkeypatch):
    """Make rich treat standard error as a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_show_progress_on_a_terminal_draws_a_bar_and_removes_it(capsys, terminal):
    with show_progress("frames") as update:
        update(4, 8)
    text = capsys.readouterr().err
    assert "frames" in text and "4/8" in text
    assert text.endswith("\x1b[2K")  # the line is erased


def test_show_lines_without_a_terminal_prints_every_line(capsys):
    with show_lines() as log:
        log("item 1")
        log("item 2")
    assert capsys.readouterr().err == "item 1\nitem 2\n"


def test_show_lines_on_a_terminal_replaces_its_line(capsys, terminal):
    with show_lines() as log:
        log("[red]item 1")
        log("[red]item 2")
    assert capsys.readouterr().err.endswith("\x1b[2K")


ROWS = [("name", "meaning"), ("a", "one two three"), ("long name", "[bold]text[/bold]")]


def test_format_table_aligns_columns_without_trailing_spaces():
    assert format_table(ROWS) == "name       meaning\na          one two three\nlong name  [bold]text[/bold]"


def test_format_table_with_a_width_folds_the_last_column():
    lines = format_table(ROWS, width=20).splitlines()
    assert max(map(len, lines)) <= 20
    assert lines[1:3] == ["a          one two", "           three"]


def test_format_table_with_an_indent_shifts_every_line():
    assert all(line.startswith("  ") for line in format_table(ROWS, indent=2).splitlines())


def test_format_table_without_rows_is_empty():
    assert format_table([]) == ""
