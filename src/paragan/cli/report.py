"""`paragan report`: a run on one page, as a file, as a film or served while it trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, Run
from paragan.core.errors import ConfigError

Out = Annotated[Path | None, typer.Option(metavar="FILE.html", help="The page; RUN/report.html unless given.")]
Film = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The samples over time as .webp, .gif or .mp4, not the page."),
]
Serve = Annotated[bool, typer.Option("--serve", help="Show it in a browser on this machine and keep it up to date.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="For --serve; 0: any that is free.")]


def report(
    run: Run, serve: Serve = False, port: Port = 8765, out: Out = None, film: Film = None, as_json: AsJson = False
) -> None:
    """Write a run's report.html, one page that needs nothing else."""
    if serve and (out or film or as_json):
        raise ConfigError("--serve: found beside --out, --film or --json, which write a file; give one of them")
    if film and out:
        raise ConfigError("--film: found beside --out, expected one of them: --film names its own file")
    if serve:
        from paragan.cli.serve import serve as serving

        serving(run, port)
    else:
        made = _film(run, film) if film is not None else _page(run, out)
        print(json.dumps({"path": str(made), "bytes": made.stat().st_size}) if as_json else made)


def _page(run: Path, out: Path | None) -> Path:
    from paragan.writers.report import NAME, render, save

    page, path = render(run), out or run / NAME
    save(page, path)
    return path


def _film(run: Path, path: Path) -> Path:
    from paragan.report.sample_frames import save_run_animation
    from paragan.storage.image_formats import check_animation_path

    check_animation_path("--film", path)
    save_run_animation(run, path)
    return path
