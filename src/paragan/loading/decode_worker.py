"""Program of a process that reads and decodes parts of batches (`DecodeProcess`).

python -m paragan.loading.decode_worker SOCKET MEMORY: inherited file descriptors.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

import torch

from paragan.core.errors import ConfigError, ParaganError
from paragan.loading.decode_process import DecodeAnswer, DecodeRequest, pickled, shared_tensors, unusable_source
from paragan.loading.loader import Loader

_PAUSE_S = 1.0


def main() -> None:
    """Answer requests until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        stream: Any = connection.makefile("rwb")
    memory = mmap.mmap(int(sys.argv[2]), 0)
    try:
        _answer_requests(stream, memory)
    except (EOFError, ConnectionError):
        os._exit(0)  # also where threads of a source wait for storage


def _answer_requests(stream: Any, memory: mmap.mmap) -> None:
    loader_bytes = pickle.load(stream)  # noqa: S301 of the parent
    loader: Loader | None = None
    while True:
        request = pickle.load(stream)  # noqa: S301 of the parent
        try:
            loader = _open(loader_bytes) if loader is None else loader
            answer = _decode(loader, request, memory)
        except Exception as error:
            answer = DecodeAnswer(error=_portable(error))
        stream.write(pickled(answer))
        stream.flush()


def _end_with_parent(parent: int) -> None:
    """End this process, even if it decodes, after its parent."""
    while os.getppid() == parent:
        time.sleep(_PAUSE_S)
    os._exit(0)


def _open(loader_bytes: bytes) -> Loader:
    """Return the loader; `ConfigError` if its source needs what this process does not have."""
    try:
        loader: Loader = pickle.loads(loader_bytes)  # noqa: S301 of the parent
        return loader
    except ParaganError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(unusable_source("the data set", reason)) from None


def _decode(loader: Loader, request: DecodeRequest, memory: mmap.mmap) -> DecodeAnswer:
    began = time.perf_counter()
    encoded = loader.source.read(request.rows) if request.encoded is None else request.encoded
    read_s = time.perf_counter() - began
    tensors = loader.decode(encoded, request.rows, request.places)
    for name, shared in shared_tensors(memory, loader.source.tensors, len(request.rows)).items():
        shared.copy_(tensors[name])
    return DecodeAnswer(read_s, tuple(map(len, encoded)) if request.encoded is None else ())


def _portable(error: Exception) -> Exception:
    """Return an error that can be pickled, with its traceback if it is a defect."""
    if not isinstance(error, ParaganError):
        error.add_note("In the process that decodes:\n" + traceback.format_exc())
    error.__cause__ = None
    try:
        pickle.loads(pickled(error))  # noqa: S301 of this process
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return error


if __name__ == "__main__":
    main()
