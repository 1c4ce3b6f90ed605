"""`paragan export`: a trained generator as files for other programs."""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Best, Code, RunOrFile, Steps, Trust, trusted
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder


class Format(Enum):
    """Values of `--format`."""

    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"


_ENDINGS = {".safetensors": Format.safetensors, ".pt2": Format.torch, ".onnx": Format.onnx}
Out = Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="A folder (default: RUN/export), or a single file.")]
_FORMATS = "Also export the network as a program; repeatable."
Direction = Annotated[str | None, typer.Option(metavar="NAME", help="Of a generator with two: a_to_b or b_to_a.")]
Formats = Annotated[list[Format] | None, typer.Option("--format", help=_FORMATS)]


def export(
    path: RunOrFile,
    *,
    out: Out = None,
    formats: Formats = None,
    direction: Direction = None,
    steps: Steps = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Write a trained generator as files for other programs.

    Writes weights, recipe, a sheet of images and a model card; `paragan.load` opens them.
    """
    single_file = None if out is None or out.is_dir() else _ENDINGS.get(out.suffix.lower())
    requested = _requested_formats(out, single_file, formats or [])
    from paragan.config import outside_names, to_tree
    from paragan.export.bundle import Bundle, read_score
    from paragan.export.formats import check_onnx
    from paragan.runs.open_generator import open_generator

    if Format.onnx in requested:
        check_onnx()
    sampler = open_generator(path, trusted(trust, code), best, steps=steps)
    if {Format.torch, Format.onnx} & set(requested):
        print("tracing the network and comparing images; takes up to a minute", file=sys.stderr, flush=True)
    score = read_score(path, best)
    outside = outside_names(sampler.config)
    bundle = Bundle(sampler=sampler, tree=to_tree(sampler.config), score=score, outside=outside, direction=direction)
    if out is not None and single_file is not None:
        print(bundle.write_file(out, single_file.value))
    else:
        folder = out or create_subfolder(path if path.is_dir() else path.parent, "export")
        print("\n".join(bundle.write(folder, [kind.value for kind in requested])))


def _requested_formats(out: Path | None, single_file: Format | None, formats: list[Format]) -> list[Format]:
    """Return the requested formats; the ending of a single file names one."""
    if single_file is None:
        if out is not None and (out.is_file() or out.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt", ".pkl")):
            raise ConfigError(
                f"--out: cannot export to {str(out)!r}; use a folder, or a file with the ending {', '.join(_ENDINGS)}"
            )
        return formats
    if set(formats) - {single_file}:
        raise ConfigError(
            f"--out: {str(out)!r} takes one format; use a folder for several, or --format {single_file.value}"
        )
    return [single_file]
