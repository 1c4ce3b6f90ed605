"""`paragan sample`: pictures and films from a trained generator."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragan.cli.arguments import Best, Seed, Trust
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder
from paragan.storage.image_formats import check_animation_path, check_sheet_path

if TYPE_CHECKING:
    from paragan.export.gallery import Sheet
    from paragan.export.sampler import Sampler


class Mode(Enum):
    """What `--mode` takes."""

    eval = "eval"
    train_stats = "train-stats"


Trained = Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or a file written by `export`.")]
Num = Annotated[int | None, typer.Option(min=1, max=10_000, help="How many images; 64, or 1 in a film, unless given.")]
Classes = Annotated[list[str] | None, typer.Option("--class", metavar="NAME|INDEX", help="Of this class; repeatable.")]
Truncation = Annotated[
    float | None, typer.Option(metavar="T", help="In (0, 1]: no component of z beyond T; more typical, less varied.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A .png or .jpg sheet, a .webp, .gif or .mp4 film; in the run's samples/ unless given."
    ),
]
Grid = Annotated[str | None, typer.Option(metavar="ROWSxCOLUMNS", help="The shape of the sheet, such as 4x10.")]
ByClass = Annotated[bool, typer.Option("--classes", help="A class per row: all, or those of --class.")]
Walk = Annotated[
    int | None, typer.Option(metavar="POINTS", min=2, max=60, help="A film through so many latents, and back.")
]
ModeName = Annotated[
    Mode | None,
    typer.Option(help="As in training (batch statistics, dropout on) or not; as the run's pictures unless given."),
]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input", metavar="PICTURES", help="A folder or file to make images from; held-out pairs unless given."
    ),
]
Frames = Annotated[int | None, typer.Option(min=2, max=1000, help="Of the film; 16 per point unless given.")]

_MOST_TILES, _PAIRS = 10_000, 8
_QUIET_S, _PLAIN_PERIOD_S = 2.0, 10.0


def sample(
    path: Trained,
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
    mode: ModeName = None,
    inputs: Input = None,
    best: Best = False,
    trust: Trust = False,
) -> None:
    """Write images or a film from a trained generator. Prints the file's path."""
    ending = _ending(out, walk, frames)
    shape = _shape(num, grid, by_class)
    from paragan.cli.source import open_generator
    from paragan.export import gallery

    sampler, how = open_generator(path, trust, best), _how(mode)
    if sampler.takes_condition or inputs is not None:
        latent_words = {"--grid": grid, "--class": classes, "--classes": by_class}
        _refuse_latent_words(sampler, {**latent_words, "--truncation": truncation, "--walk": walk})
        words = [f"mode-{how}"] * bool(how) + ([] if inputs is None else [f"input-{inputs.stem}"])
        target = out or _target(path, sampler, seed, ending, words)
        return print(_translated(sampler, num, inputs, seed, how, target))
    tiles = _tiles(sampler, shape or (num or (1 if walk else 64)), classes or [], seed, by_class)
    asked = {"grid": grid, "class": "-".join(classes or []), "truncation": truncation, "mode": how}
    words = [f"{name}-{value}" for name, value in asked.items() if value] + ["classes"] * by_class
    target = out or _target(path, sampler, seed, ending, words)
    if walk is None:
        told = progress(len(tiles.which_B), "images")
        gallery.render_sheet(sampler, tiles, seed, truncation, told, how).save(target, tiles.columns)
    else:
        film = gallery.Film(tiles, walk, frames or 16 * walk, how)
        film.save(sampler, target, seed, truncation, progress(film.frames, "frames"))
    print(target)


def _ending(out: Path | None, walk: int | None, frames: int | None) -> str:
    """Of the file that is written unless `out` names one."""
    if out is not None:
        check = check_sheet_path if walk is None else check_animation_path
        check("--out", out)
    if frames is not None and walk is None:
        raise ConfigError("--frames: found no --walk beside it, expected a film; give --walk POINTS, such as --walk 8")
    return ".png" if walk is None else ".webp"


def _refuse_latent_words(sampler: Sampler, given: dict[str, object]) -> None:
    if not sampler.takes_condition:
        raise ConfigError("--input: found pictures, but this generator makes images from latents; leave it out")
    for word, value in given.items():
        if value:
            raise ConfigError(f"{word}: found beside a generator that makes images from images; leave it out")


def _translated(
    sampler: Sampler, num: int | None, inputs: Path | None, seed: int | None, mode: Any, target: Path
) -> Path:
    """Inputs, what is made of them and, of held-out pairs, the targets, on one sheet."""
    from paragan.datasets import paired
    from paragan.export import gallery
    from paragan.loading.loader import normalise

    given = None if inputs is None else normalise(paired.read_inputs(str(inputs), sampler.info.shape))[:num]
    count = len(given) if given is not None else num or min(_PAIRS, sampler.num_pairs)
    made, columns = gallery.render_pairs(sampler, count, given, seed, progress(count, "images"), mode)
    return made.save(target, columns)


def _how(mode: Mode | None) -> Any:
    return None if mode is None else mode.value


def _shape(num: int | None, grid: str | None, by_class: bool) -> tuple[int, int] | None:
    """(rows, columns) of --grid."""
    if num is not None and (grid or by_class):
        raise ConfigError("--num: found beside --grid or --classes, which tell how many; leave one of them out")
    if grid is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,4}", grid, re.ASCII):
        raise ConfigError(f"--grid: found {grid!r}, expected ROWSxCOLUMNS such as 4x10")
    rows, columns = map(int, grid.split("x"))
    if rows * columns > _MOST_TILES:
        raise ConfigError(f"--grid: found {rows * columns:,} images, expected at most {_MOST_TILES:,} on a sheet")
    return rows, columns


def _tiles(sampler: Sampler, shape: tuple[int, int] | int, asked: list[str], seed: int | None, by_class: bool) -> Sheet:
    from paragan.export import gallery

    if by_class:
        rows, columns = (None, gallery.COLUMNS) if isinstance(shape, int) else shape
        return gallery.class_sheet(sampler, asked, rows, columns)
    num, columns = (shape, gallery.COLUMNS) if isinstance(shape, int) else (shape[0] * shape[1], shape[1])
    return gallery.latent_sheet(sampler, num, columns, asked, seed)


def _target(path: Path, sampler: Sampler, seed: int | None, ending: str, words: list[str]) -> Path:
    """Beside the others, under a name that says how it was asked for."""
    kind = "sample" if ending == ".png" else "walk"
    seed = sampler.seed if seed is None else seed
    name = "-".join([kind, f"step-{sampler.info.step}", f"seed-{seed}", *map(_plain, words)])[:150] + ending
    return create_subfolder(path, "samples") / name if path.is_dir() else path.parent / name


def _plain(word: str) -> str:
    """Of a class name only what any file system takes."""
    return re.sub(r"[^\w.-]+", "_", word, flags=re.ASCII)


def progress(total: int, what: str) -> Callable[[int], None]:
    """Told how many are done, tells a person: after two seconds, on one line; one every ten off a terminal."""
    began = shown = time.monotonic()
    there = sys.stderr.isatty()

    def told(done: int) -> None:
        nonlocal shown
        now = time.monotonic()
        spent, due = now - began, now - shown >= (0.2 if there else _PLAIN_PERIOD_S)
        if there and done == total and shown > began:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif spent >= _QUIET_S and due and done < total:
            shown = now
            text = f"{done:,} of {total:,} {what}, about {spent / done * (total - done):.0f} s left"
            print(f"\r\x1b[K{text}" if there else text, end="" if there else "\n", file=sys.stderr, flush=True)

    return told
