"""`paragan project`: the nearest image of a trained generator to a given one, and its latent."""

import json
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, Best, Code, RunOrFile, Seed, Trust, trusted
from paragan.cli.progress import show_progress

Image = Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file; cropped to the run's shape and resized.")]
_CLASS = "Class of the image (default: the nearest one)."
Class = Annotated[str | None, typer.Option("--class", metavar="NAME|INDEX", help=_CLASS)]
Steps = Annotated[int, typer.Option(min=1, max=10_000, help="Steps of the optimisation.")]
_OUT = "Sheet of the image and its projection (.png, .jpg), next to the latent (default: in the run's projections/)."
Out = Annotated[Path | None, typer.Option(metavar="FILE", help=_OUT)]


def project_command(
    path: RunOrFile,
    image: Image,
    *,
    label: Class = None,
    steps: Steps = 300,
    seed: Seed = None,
    out: Out = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Find the latent that generates an image like a given one."""
    from paragan.extensions.serving.write_projection import write_projection
    from paragan.runs.open_generator import open_generator

    sampler = open_generator(path, trusted(trust, code), best)
    with show_progress("steps") as update:
        projection = write_projection(
            sampler,
            path,
            image,
            label=label,
            steps=steps,
            seed=seed,
            out=out,
            progress=lambda done: update(done, steps),
        )
    if as_json:
        print(json.dumps(projection))
    else:
        print(projection["image"], projection["latent"], sep="\n")
        class_text = "" if projection["class"] is None else f", class {projection['class']}"
        print(f"mean squared error {projection['error']:.4g}{class_text}")
