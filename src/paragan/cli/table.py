"""Plain-text tables: aligned columns; the last one is folded to the terminal's width."""

import io
import shutil
import sys
from collections.abc import Sequence

_UNLIMITED = 100_000


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def format_table(rows: Sequence[Sequence[str]], width: int | None = None, indent: int = 0) -> str:
    """Return the rows as text, folded to `width` if one is given."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return ""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0][:-1]:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    width = width or _UNLIMITED
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(Padding(table, (0, 0, 0, indent), expand=False))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
