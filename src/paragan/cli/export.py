"""`paragan export`: a trained generator as files for others."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Best, Trust
from paragan.cli.sample import Trained
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder


class Format(Enum):
    """What `--format` takes."""

    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"


_ENDINGS = {".safetensors": Format.safetensors, ".pt2": Format.torch, ".onnx": Format.onnx}
Out = Annotated[
    Path | None, typer.Option(metavar="DIR|FILE", help="A folder (RUN/export unless given), or one file alone.")
]
Formats = Annotated[
    list[Format] | None, typer.Option("--format", help="Beside the weights, also as a program; repeatable.")
]


def export(
    path: Trained, *, out: Out = None, formats: Formats = None, best: Best = False, trust: Trust = False
) -> None:
    """Write a trained generator as files for other programs.

    Weights, the recipe, a sheet of images and a model card; `paragan.load` opens them.
    """
    alone = None if out is None or out.is_dir() else _ENDINGS.get(out.suffix.lower())
    wanted = _wanted(out, alone, formats or [])
    from paragan.cli.source import open_generator
    from paragan.config import outside_names, to_tree
    from paragan.export.bundle import Bundle, read_score
    from paragan.export.formats import refuse_without_onnx

    if Format.onnx in wanted:
        refuse_without_onnx()
    sampler = open_generator(path, trust, best)
    if {Format.torch, Format.onnx} & set(wanted):
        print("tracing the network and comparing images, up to a minute", file=sys.stderr, flush=True)
    score = read_score(path, best)
    bundle = Bundle(sampler, to_tree(sampler.config), score, bool(outside_names(sampler.config)))
    if out is not None and alone is not None:
        print(bundle.write_file(out, alone.value))
    else:
        folder = out or create_subfolder(path if path.is_dir() else path.parent, "export")
        print("\n".join(bundle.write(folder, [wish.value for wish in wanted])))


def _wanted(out: Path | None, alone: Format | None, formats: list[Format]) -> list[Format]:
    """The formats asked for; a file's ending is one, too."""
    if alone is None:
        if out is not None and (out.is_file() or out.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt", ".pkl")):
            raise ConfigError(f"--out: found {str(out)!r}, expected a folder, or a file in {', '.join(_ENDINGS)}")
        return formats
    if set(formats) - {alone}:
        raise ConfigError(
            f"--out: found {str(out)!r}, expected a folder for more than one format, or --format {alone.value}"
        )
    return [alone]
