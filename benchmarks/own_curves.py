"""Curves of fd of the runs of `own_images`: `python -m benchmarks.own_curves RESULT.json OUT.svg`."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from benchmarks.command import run_command
from benchmarks.plots import Curve, Panel, line_plot

app = typer.Typer(add_completion=False)


@app.command()
def main(result: Path, out: Path) -> None:
    """Write the curves as SVG."""
    out.write_text(curves(json.loads(result.read_text())["runs"]))


def curves(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return curves as SVG: the mean over seeds, with a band from the lowest to the highest around its middle."""
    folders = sorted({run["folder"] for run in runs})
    panels = []
    for size in sorted({run["size"] for run in runs}):
        by_folder = {
            name: [run["fd"] for run in runs if (run["folder"], run["size"]) == (name, size)] for name in folders
        }
        lines = [Curve(name, _points(fds), folders.index(name)) for name, fds in by_folder.items() if fds]
        panels.append(Panel(f"fd at {size} px", "thousands of real images", lines))
    return line_plot(
        "fd to training images by the classifier of the folder: mean of seeds, lowest to highest", [panels]
    )


def _points(fds: Sequence[Mapping[str, float]]) -> list[tuple[float, float, float]]:
    """Return (kimg, mean, half of the range) where every run has a score."""
    kimgs = [kimg for kimg in fds[0] if all(kimg in fd for fd in fds)]
    values = {kimg: [fd[kimg] for fd in fds] for kimg in kimgs}
    return [(float(k), statistics.mean(v), (max(v) - min(v)) / 2) for k, v in values.items()]


if __name__ == "__main__":
    sys.exit(run_command(app, "own_curves"))
