"""`paragan export`: a trained generator as files for other programs."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paragan.cli.arguments import Best, Code, RunOrFile, Steps, Trust, trusted
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder

if TYPE_CHECKING:
    from paragan.export.bundle import Bundle
    from paragan.export.discriminator import ExportedDiscriminator
    from paragan.export.sampler import Sampler


class Format(Enum):
    """Values of `--format`."""

    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"
    python = "python"


_ENDINGS = {".safetensors": Format.safetensors, ".pt2": Format.torch, ".onnx": Format.onnx}
Out = Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="A folder (default: RUN/export), or a single file.")]
_FORMATS = "Also export the network as a program, or as Python source; repeatable."
Direction = Annotated[str | None, typer.Option(metavar="NAME", help="One direction of CycleGAN: a_to_b or b_to_a.")]
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
    single_file = None if out is None or out.is_dir() else _ENDINGS.get(out.suffix.lower())
    requested = _requested_formats(out, single_file, formats or [])
    if player == "d" and (direction is not None or steps is not None or single_file is not None):
        raise ConfigError("--player d has no --direction and no --steps; leave them out, and pass a folder as --out")
    from paragan.export.formats import check_onnx
    from paragan.runs.open_generator import open_discriminator, open_generator

    if "onnx" in requested:
        check_onnx()
    programs = set(requested) - {"safetensors"}
    if direction is not None and not programs:
        raise ConfigError("--direction is for programs: weights hold both; add --format onnx or torch, or leave it out")
    outside_code = trusted(trust, code)
    exported: Bundle | ExportedDiscriminator
    if player == "d":
        exported = open_discriminator(path, outside_code, best)
    else:
        exported = bundle = _open_bundle(open_generator(path, outside_code, best, steps=steps), path, direction)
        if out is not None and single_file is not None:
            _export_single(bundle, out, single_file)
            return
    folder = out or _default_folder(path, "export" if player == "g" else "export-d")
    exported.check_folder(folder)
    _check_programs(exported, programs)
    print("\n".join(exported.write(folder, requested)))


def _open_bundle(sampler: Sampler, path: Path, direction: str | None) -> Bundle:
    from paragan.config import outside_names, to_tree
    from paragan.export.bundle import Bundle
    from paragan.runs.published_generator import check_whole

    check_whole(sampler, path)
    outside, tree = outside_names(sampler.config), to_tree(sampler.config)
    return Bundle(sampler=sampler, tree=tree, score=sampler.score, outside=outside, direction=direction)


def _export_single(bundle: Bundle, path: Path, kind: Format) -> None:
    bundle.check_single(path)
    _check_programs(bundle, {kind.value} - {"safetensors"})
    print("\n".join(bundle.write_single(path, kind.value)))


def _check_programs(exported: Bundle | ExportedDiscriminator, programs: set[str]) -> None:
    if programs:
        exported.check_programs()
        print("tracing the network and comparing outputs; takes up to a minute", file=sys.stderr, flush=True)


def _default_folder(path: Path, name: str) -> Path:
    """Return a folder of the run, or next to the file."""
    return create_subfolder(path if path.is_dir() else path.parent, name)


def _requested_formats(out: Path | None, single_file: Format | None, formats: list[Format]) -> list[str]:
    """Return the requested formats by name; the ending of a single file names one."""
    if single_file is None:
        if out is not None and (out.is_file() or out.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".py")):
            raise ConfigError(
                f"--out: cannot export to {str(out)!r}; use a folder, or a file with the ending {', '.join(_ENDINGS)}"
            )
        return [kind.value for kind in formats]
    if set(formats) - {single_file}:
        raise ConfigError(
            f"--out: {str(out)!r} takes one format; use a folder for several, or --format {single_file.value}"
        )
    return [single_file.value]
