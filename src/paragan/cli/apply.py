"""`paragan apply`: a trained generator on files of any size."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Best, Code, Direction, RunOrFile, Seed, Steps, Trust, trusted
from paragan.cli.progress import show_progress
from paragan.cli.sample import Mode
from paragan.core.errors import ConfigError
from paragan.core.printable import counted, to_printable

_INPUT = "An image or audio file, or a folder, .zip or .tar file of them."
Input = Annotated[Path, typer.Argument(metavar="INPUT", help=_INPUT)]
_OUT = "Folder for the results: one file per input, with its name. Run the command again to resume."
Out = Annotated[Path, typer.Option(metavar="DIR", help=_OUT)]
_TILE = "Work in tiles of this side, in pixels or audio samples (default: only for large inputs)."
Tile = Annotated[int | None, typer.Option(min=8, help=_TILE)]
_OVERLAP = "Overlap of tiles (default: 64 pixels, 8192 samples)."
Overlap = Annotated[int | None, typer.Option(min=0, help=_OVERLAP)]
Encode = Annotated[bool, typer.Option("--encode", help="Write the tokens of a codec or VQGAN, as .safetensors.")]
Decode = Annotated[bool, typer.Option("--decode", help="Read tokens that --encode wrote.")]
_MAX_LISTED = 10


def apply_command(
    path: RunOrFile,
    source: Input,
    *,
    out: Out,
    direction: Direction = None,
    encode: Encode = False,
    decode: Decode = False,
    tile: Tile = None,
    overlap: Overlap = None,
    seed: Seed = None,
    mode: Mode = None,
    steps: Steps = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Apply a trained generator to your own files, of any size.

    Damaged inputs are named and left out, and the exit code is 2.
    """
    from paragan.runs.apply_files import ApplyRequest, Tokens, apply_to_files
    from paragan.runs.open_generator import open_generator

    if encode and decode:
        raise ConfigError("--encode writes tokens and --decode reads them; leave one out")
    tokens: Tokens | None = "encode" if encode else "decode" if decode else None
    request = ApplyRequest(direction=direction, tokens=tokens, tile=tile, overlap=overlap, seed=seed, mode=mode)
    sampler = open_generator(path, trusted(trust, code), best, steps=steps)
    with show_progress("files") as update:
        applied = apply_to_files(sampler, source, out, request, update)
    existing = f", {applied.num_existing:,} existed already" if applied.num_existing else ""
    print(f"{out}: {counted(applied.num_written, 'file')} written{existing}")
    if applied.damaged:
        _print_damaged(applied.damaged)
        raise typer.Exit(2)


def _print_damaged(lines: Sequence[str]) -> None:
    print(f"{len(lines):,} inputs are damaged and were left out:", file=sys.stderr)
    for line in lines[:_MAX_LISTED]:
        print(f"  {to_printable(line)}", file=sys.stderr)
