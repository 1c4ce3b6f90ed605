"""What a notebook shows of a run: its newest samples and score, and a link to its report."""

from base64 import b64encode
from contextlib import suppress
from html import escape
from pathlib import Path
from urllib.parse import quote

from paragan.core.files import read_bytes
from paragan.core.printable import to_printable

_MAX_BYTES = 32 << 20  # of a sheet, which becomes a part of the notebook's file


def run_html(folder: Path, score: str) -> str:
    """Return the newest sheet of a run folder as an image, the score, and a link to report.html, if it exists."""
    where = escape(to_printable(folder))
    if (report := folder / "report.html").is_file():
        where = f'<a href="{quote(str(report))}" target="_blank">{where}/report.html</a>'
    return f"<div>{_newest_sheet(folder)}<p>{escape(to_printable(score))} {where}</p></div>"


def _newest_sheet(folder: Path) -> str:
    for sheet in sorted(folder.glob("samples/step-*.png"), reverse=True):
        with suppress(OSError):  # too large, or no plain file
            content = b64encode(read_bytes(sheet, _MAX_BYTES)).decode()
            return f'<img alt="{escape(sheet.stem)}" src="data:image/png;base64,{content}">'
    return ""
