"""`paragan export`: a trained generator as files for other programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paragan.cli.arguments import Best, Code, Direction, RunOrFile, Steps, Trust, trusted
from paragan.config import outside_names, to_tree
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder

if TYPE_CHECKING:
    from paragan.export.bundle import Bundle
    from paragan.export.discriminator import ExportedDiscriminator
    from paragan.export.sampler import Sampler


class Format(StrEnum):
    """Values of `--format`; an enum, because typer takes no list of `Literal`."""

    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"
    python = "python"


_ENDINGS = {".safetensors": Format.safetensors, ".pt2": Format.torch, ".onnx": Format.onnx}
Out = Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="A folder (default: RUN/export), or a single file.")]
_FORMATS = "Also export the network as a program, or as Python source; repeatable."
_PLAYER = "Network to export: the generator (g), or the discriminator (d), whose programs return logits."
Player = Annotated[Literal["g", "d"], typer.Option(help=_PLAYER)]
Formats = Annotated[list[Format] | None, typer.Option("--format", help=_FORMATS)]


def export(
    path: RunOrFile,
    *,
    out: Out = None,
    formats: Formats = None,
    player: Player = "g",
    direction: Direction = None,
    steps: Steps = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Write a trained network as files for other programs.

    Writes weights, recipe, a sheet of images and a model card; `paragan.load` opens them.
    """
    # format of the one file that --out names by its ending; None: a folder is written
    single = None if out is None or out.is_dir() else _ENDINGS.get(out.suffix.lower())
    requested = _requested_formats(out, single, formats or [])
    if player == "d" and (direction is not None or steps is not None or single is not None):
        raise ConfigError("--player d has no --direction and no --steps; leave them out, and pass a folder as --out")
    from paragan.export.formats import check_onnx
    from paragan.runs.open_generator import open_discriminator, open_generator

    if "onnx" in requested:
        check_onnx()
    if direction is not None and set(requested) <= {Format.safetensors}:
        raise ConfigError("--direction is for programs: weights hold both; add --format onnx or torch, or leave it out")
    outside_code = trusted(trust, code)
    if player == "d":
        discriminator = open_discriminator(path, outside_code, best)
        _write_folder(discriminator, out or _default_folder(path, "export-d"), requested)
        return
    bundle = _open_bundle(open_generator(path, outside_code, best, steps=steps), path, direction)
    if out is not None and single is not None:
        bundle.check_single(out)
        _check_programs(bundle, requested)
        print("\n".join(bundle.write_single(out, single)))
    else:
        _write_folder(bundle, out or _default_folder(path, "export"), requested)


def _open_bundle(sampler: Sampler, path: Path, direction: str | None) -> Bundle:
    from paragan.export.bundle import Bundle
    from paragan.runs.published_generator import check_whole

    check_whole(sampler, path)
    outside, tree = outside_names(sampler.config), to_tree(sampler.config)
    return Bundle(sampler=sampler, tree=tree, score=sampler.score, outside=outside, direction=direction)


def _write_folder(exported: Bundle | ExportedDiscriminator, folder: Path, formats: Sequence[Format]) -> None:
    exported.check_folder(folder)
    _check_programs(exported, formats)
    print("\n".join(exported.write(folder, formats)))


def _check_programs(exported: Bundle | ExportedDiscriminator, formats: Sequence[Format]) -> None:
    if set(formats) - {Format.safetensors}:
        exported.check_programs()
        print("tracing the network and comparing outputs; takes up to a minute", file=sys.stderr, flush=True)


def _default_folder(path: Path, name: str) -> Path:
    """Return a folder of the run, or next to the file."""
    return create_subfolder(path if path.is_dir() else path.parent, name)


def _requested_formats(out: Path | None, single: Format | None, formats: list[Format]) -> list[Format]:
    """Return the formats to write: that of a single file, or those of --format; weights are always in a folder."""
    if single is None:
        if out is not None and (out.is_file() or out.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".py")):
            raise ConfigError(
                f"--out: cannot export to {str(out)!r}; use a folder, or a file with the ending {', '.join(_ENDINGS)}"
            )
        return formats
    if set(formats) - {single}:
        raise ConfigError(f"--out: {str(out)!r} takes one format; use a folder for several, or --format {single}")
    return [single]
