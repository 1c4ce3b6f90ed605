"""Paths that a terminal shows as links."""

import sys

import pytest

from paragan.core.printable import print_line


@pytest.mark.parametrize(
    ("is_terminal", "kind", "is_linked"), [(True, "xterm", True), (True, "dumb", False), (False, "xterm", False)]
)
def test_link_only_on_a_terminal(tmp_path, capsys, monkeypatch, is_terminal, kind, is_linked):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", kind)
    print_line("where     run: report.html, samples/", link=tmp_path / "report.html")
    text = capsys.readouterr().out
    address = f"\x1b]8;;file://{tmp_path}/report.html\x1b\\"
    linked = f"where     run: {address}report.html\x1b]8;;\x1b\\, samples/\n"
    assert text == (linked if is_linked else "where     run: report.html, samples/\n")


def test_control_characters_of_a_path_reach_no_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    print_line("run \x1b[2J: report.html", link=tmp_path / "a\x1b[2J\n" / "report.html")
    text = capsys.readouterr().out
    assert "\x1b[2J" not in text
    assert "run ?[2J" in text
    assert "%1B%5B2J%0A/report.html" in text
