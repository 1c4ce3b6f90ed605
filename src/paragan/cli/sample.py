"""`paragan sample`: images and animations from a trained generator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paragan.cli.arguments import Best, Code, RunOrFile, Seed, Steps, Trust, trusted
from paragan.cli.progress import show_progress
from paragan.runs.write_samples import SampleRequest

if TYPE_CHECKING:
    from paragan.core.outside_code import CodeFolder

Num = Annotated[int | None, typer.Option(min=1, help="Number of images (default: 64; 1 in an animation).")]
Classes = Annotated[list[str] | None, typer.Option("--class", metavar="NAME|INDEX", help="Class; can be repeated.")]
_TRUNCATION = "Truncation trick, T in (0, 1]: a smaller T gives more typical, less varied images."
Truncation = Annotated[float | None, typer.Option(metavar="T", help=_TRUNCATION)]
_OUT = (
    "A .png or .jpg sheet, or a .webp, .gif or .mp4 animation (default: in the run's samples/); or a folder for "
    "single files, or one .npz array, of any number of images."
)
Out = Annotated[Path | None, typer.Option(metavar="FILE|DIR", help=_OUT)]
_FORMAT = "Format of single files; webp is lossless."
_STANDING = "Average the statistics of batch norm over this many generated images (BigGAN's standing statistics)."
Standing = Annotated[int | None, typer.Option("--standing-stats", metavar="N", min=64, help=_STANDING)]
Format = Annotated[Literal["png", "webp"], typer.Option("--format", help=_FORMAT)]
_MIX = "Mix styles (StyleGAN2): rows share the styles below this layer, columns those from it on."
Mix = Annotated[int | None, typer.Option("--mix", metavar="LAYER", min=1, help=_MIX)]
Grid = Annotated[str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Shape of the sheet, such as 4x10.")]
ByClass = Annotated[bool, typer.Option("--classes", help="One row per class: all classes, or those of --class.")]
_WALK = "Write an animation that interpolates a loop of POINTS latents."
Walk = Annotated[int | None, typer.Option(metavar="POINTS", min=2, max=60, help=_WALK)]
Frames = Annotated[int | None, typer.Option(min=2, max=1000, help="Frames of the animation (default: 16 per point).")]
_MODE = "eval, or train-stats: batch statistics and dropout as in training (default: the run's mode)."
Mode = Annotated[Literal["eval", "train-stats"] | None, typer.Option(help=_MODE)]


def sample_command(
    path: RunOrFile,
    *,
    num: Num = None,
    seed: Seed = None,
    classes: Classes = None,
    truncation: Truncation = None,
    out: Out = None,
    grid: Grid = None,
    by_class: ByClass = False,
    walk: Walk = None,
    frames: Frames = None,
    mode: Mode = None,
    steps: Steps = None,
    file_format: Format = "png",
    standing_stats: Standing = None,
    mix: Mix = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Write images or an animation from a trained generator."""
    request = SampleRequest(
        num=num,
        seed=seed,
        classes=tuple(classes or ()),
        truncation=truncation,
        out=out,
        grid=grid,
        by_class=by_class,
        walk=walk,
        frames=frames,
        mode=mode,
        steps=steps,
        file_format=file_format,
        standing_stats=standing_stats,
        mix=mix,
    )
    print(_write(path, request, trusted(trust, code), best))


def _write(path: Path, request: SampleRequest, trust: bool | CodeFolder, best: bool) -> Path:
    from paragan.runs.open_generator import open_generator
    from paragan.runs.sample_files import write_files
    from paragan.runs.write_samples import with_standing_stats, write_samples

    sampler = open_generator(path, trust, best, steps=request.steps)
    if request.standing_stats is not None:
        sampler = with_standing_stats(sampler, request.standing_stats)
    with show_progress("images" if request.walk is None else "frames") as update:
        if request.has_single_files:
            return write_files(sampler, request, update)
        return write_samples(sampler, path, request, update)
