"""Plain-text tables of the command line."""

from paragan.cli.table import format_table

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
