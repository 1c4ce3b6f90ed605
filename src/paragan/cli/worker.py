"""`paragan worker`: a process that trains cells of a grid run on another host."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from paragan.core.errors import ConfigError, RankError
from paragan.core.printable import print_line

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address that the coordinator prints.")]
Device = Annotated[str, typer.Option(help="auto, cpu, or the index of an accelerator of this host.")]


def worker_command(address: Address, device: Device = "auto") -> None:
    """Join a grid run as a worker.

    The access token is read from PARAGAN_TOKEN, or from the file named by PARAGAN_TOKEN_FILE.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"worker: {address!r} is not HOST:PORT; use the address that the coordinator prints")
    with _ignore_sigusr1():
        from paragan.extensions.grid.build.worker import join_coordinator
        from paragan.extensions.grid.workers.handshake import find_token

        token = find_token()
        if reason := join_coordinator(token, host, int(port), print_line, device):
            raise RankError(f"worker: {reason}")


@contextmanager
def _ignore_sigusr1() -> Iterator[None]:
    """Ignore SIGUSR1, which a scheduler may send to all processes; the coordinator ends workers."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
