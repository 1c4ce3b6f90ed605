"""`paragan serve`: a local page where a trained generator is used."""

from typing import Annotated

import typer

from paragan.cli.arguments import Best, Code, RunOrFile, Steps, Trust, trusted

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")]


def serve_command(
    path: RunOrFile, port: Port = 8766, steps: Steps = None, best: Best = False, trust: Trust = False, code: Code = None
) -> None:
    """Use a trained generator on a local page."""
    from paragan.extensions.serving.sample_server import SampleServer
    from paragan.runs.open_generator import open_generator

    sampler = open_generator(path, trusted(trust, code), best, steps=steps)
    with SampleServer(sampler, f"{path.name}, step {sampler.info.step:,}", port) as server:
        server.serve_until_interrupted()
