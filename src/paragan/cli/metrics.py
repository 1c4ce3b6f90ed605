"""`paragan metrics`: files that published metrics need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Import files that published metrics need.")

_FILE = "The file of pytorch-fid or torch-fidelity, pt_inception-2015-12-05-6726825d.pth."
File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE)]


@app.callback()
def _metrics() -> None:
    """Make `import-weights` a subcommand although it is the only one."""


@app.command()
def import_weights(file: File) -> None:
    """Verify the public Inception weights and store them.

    Runs with evaluation.features=inception find them there. Exit code 2: another file, by its sha256.
    """
    from paragan.features import _inception_weights

    path = _inception_weights.store_weights(file)
    print(f"stored {path}; use evaluation.features=inception for the published FID and Inception score")
