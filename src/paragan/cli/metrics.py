"""`paragan metrics`: files that published metrics need."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Import public weights that published metrics, such as FID, need.")

_FILE = "File of pytorch-fid (pt_inception-2015-12-05-6726825d.pth) or torchvision (inception_v3_google-0cc3c7bd.pth)."
File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE)]


@app.callback()
def _metrics() -> None:
    """Make `import-weights` a subcommand although it is the only one."""


@app.command()
def import_weights(file: File) -> None:
    """Verify public Inception weights by their sha256 and store them.

    Runs with evaluation.features=inception, or inception_torchvision, find them there. Exit code 2: any other file.
    """
    from paragan.features.base import inception_weights

    path, extractor = inception_weights.store_weights(file)
    other = "values by torchvision's network, not the published FID"
    values = "the published FID and Inception score" if extractor == "inception" else other
    print(f"stored {path}; use evaluation.features={extractor} for {values}")
