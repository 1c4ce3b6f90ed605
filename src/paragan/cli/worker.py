"""`paragan worker`: a process that trains cells of a grid, for a coordinator that listens somewhere."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from paragan.core.errors import ConfigError, RankError
from paragan.core.printable import printable

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the coordinator listens.")]


def worker(address: Address) -> None:
    """Train cells of the grid whose coordinator listens at HOST:PORT; the token is read from PARAGAN_TOKEN."""
    from paragan.build_crew import worker as work
    from paragan.launch.crew import TOKEN

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"worker: found {address!r}, expected HOST:PORT, as the coordinator prints it")
    if not (token := os.environ.get(TOKEN, "")):
        raise ConfigError(f"worker: found no {TOKEN} in the environment, expected the run's token")
    if why := work(token, host, int(port), lambda text: print(printable(text), flush=True)):
        raise RankError(f"worker: {why}")
