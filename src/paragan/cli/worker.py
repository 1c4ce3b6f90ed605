"""`paragan worker`: a process that trains cells of a grid, for a coordinator that listens somewhere."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from paragan.core.errors import ConfigError, RankError
from paragan.core.printable import to_printable

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the coordinator listens, as it prints it.")]


Device = Annotated[str, typer.Option(help="auto, cpu, or the number of an accelerator of this host.")]


def worker(address: Address, device: Device = "auto") -> None:
    """Join a grid run as a worker.

    The access token is read from PARAGAN_TOKEN, or from the file that PARAGAN_TOKEN_FILE names.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"worker: found {address!r}, expected HOST:PORT, as the coordinator prints it")
    with _ignoring_warnings():
        from paragan.build.workers import worker as work
        from paragan.distributed.transports.signed_frames import find_token

        if why := work(find_token(), host, int(port), lambda text: print(to_printable(text), flush=True), device):
            raise RankError(f"worker: {why}")


@contextmanager
def _ignoring_warnings() -> Iterator[None]:
    """A scheduler may send SIGUSR1 to all processes of a job: the coordinator saves, and ends its workers."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
