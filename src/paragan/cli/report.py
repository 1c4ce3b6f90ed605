"""`paragan report`: the report page of a run, or an animation of its samples."""

import json
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, RunRecord
from paragan.core.errors import ConfigError
from paragan.core.printable import print_line

Out = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Output file (default: RUN/report.html).")]
_FILM = "Write an animation of the samples (.webp, .gif, .mp4) instead of the page."
Film = Annotated[Path | None, typer.Option(metavar="FILE", help=_FILM)]


def report(run: RunRecord, out: Out = None, film: Film = None, as_json: AsJson = False) -> None:
    """Write a run's report.html: one self-contained page."""
    if film and out:
        raise ConfigError("--film names its own file; leave out --out")
    if film:
        from paragan.report.sample_frames import save_run_animation
        from paragan.storage.image_formats import check_animation_path

        check_animation_path("--film", film)
        save_run_animation(run, film)
        path = film
    else:
        from paragan.report.page import Page

        path = Page(run).save(out)
    if as_json:
        print(json.dumps({"path": str(path), "bytes": path.stat().st_size}))
    else:
        print_line(path, link=path)
