"""A child process that reads and decodes parts of batches for one thread.

Loader, rows and answers are pickled; both ends are processes of one program, connected by a socket without
a name, so nothing that another program or a file provides is ever unpickled.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from paragan.core.answering_processes import source_environment
from paragan.core.errors import ConfigError, DataError
from paragan.core.local_processes import LocalProcesses
from paragan.core.outside_code import FILE_MODULE, import_outside
from paragan.core.source import TensorSpec
from paragan.loading.loader import Loader, Places

_ALIGNMENT = 64
_EXIT_S = 5.0
_PICKLE_ERRORS = (pickle.PickleError, TypeError, AttributeError)


@dataclass(frozen=True)
class DecodeRequest:
    """Samples to decode. encoded: None: the process reads them, too."""

    encoded: Sequence[bytes] | None
    rows: Places
    places: Places


@dataclass(frozen=True)
class DecodeAnswer:
    """What the process did; the tensors are in the shared memory.

    read_s: seconds of reading. num_bytes: of each sample that was read. error: raised by `decode`.
    """

    read_s: float = 0.0
    num_bytes: tuple[int, ...] = ()
    error: Exception | None = None


class DecodeProcess:
    """A process that starts at the first part, and again at the next part after it has failed.

    It has one thread, a session of its own, which Ctrl-C does not reach, and ends with this process.
    A process that was killed is not restarted for the same part: what killed it (memory, a defect of
    a decoder) would do so again. pickled_loader: by `pickle_loader`. specs: of the tensors of a
    sample. num_rows: of a part, at most.
    """

    def __init__(self, pickled_loader: bytes, specs: Mapping[str, TensorSpec], num_rows: int, timeout_s: float) -> None:
        self._pickled_loader = pickled_loader
        self._specs = specs
        self._num_bytes = max(1, tensors_bytes(specs, num_rows))
        self._timeout_s = timeout_s
        self._processes: LocalProcesses | None = None
        self._stream: Any = None
        self._memory: Any = None
        self._lock = threading.Lock()

    def decode(self, request: DecodeRequest) -> tuple[Mapping[str, Tensor], DecodeAnswer]:
        """Return decoded and flipped samples, valid until the next call, from one thread at a time.

        Raises the errors of the source, and `DataError` if the process ends or gives no answer in time.
        """
        try:
            if self._processes is None:
                self._start()
            self._stream.write(pickled(request))
            self._stream.flush()
            answer: DecodeAnswer = pickle.load(self._stream)  # noqa: S301 of the child
        except TimeoutError:
            problem = f"the process that decodes gave no answer within {self._timeout_s:g} s"
            self.close()
            raise DataError(f"data: {problem}; check the storage of data.path, or increase train.timeout_s") from None
        except (EOFError, ConnectionError, pickle.UnpicklingError):
            raise DataError(self._failure()) from None
        if answer.error is not None:
            raise answer.error
        return shared_tensors(self._memory, self._specs, len(request.rows)), answer

    def close(self) -> None:
        """End the process, from the thread that decodes."""
        self.end()
        if self._stream is not None:
            with suppress(OSError):  # bytes that were not sent
                self._stream.close()

    def end(self) -> None:
        """End the process, from any thread; a call that waits for it raises `DataError`."""
        with self._lock:
            processes = self._processes
            self._processes = None
        if processes is not None:
            processes.kill()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        processes = LocalProcesses()
        with theirs, _anonymous_file(self._num_bytes) as file:
            self._memory = mmap.mmap(file, self._num_bytes)
            inherited = (theirs.fileno(), file)
            # -P: a torch.py in the working directory would replace the library
            command = [sys.executable, "-P", "-m", "paragan.loading.decode_worker", *map(str, inherited)]
            processes.start(command, source_environment(), inherit=inherited)
        ours.settimeout(self._timeout_s)
        with ours:  # the stream holds it open
            self._stream = ours.makefile("rwb")
        with self._lock:
            self._processes = processes
        self._stream.write(pickled(self._pickled_loader))

    def _failure(self) -> str:
        with self._lock:
            processes = self._processes
        if processes is None:
            self.close()
            return "data: the process that decodes was ended by `close`"
        processes.wait(_EXIT_S)
        (code,) = processes.codes
        self.close()
        problem = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        fix = "check the memory of the machine, lower data.threads, or use data.decode=threads"
        return f"data: the process that decodes {problem}; {fix}"


class _Pickler(pickle.Pickler):
    """Pickler that names classes and functions of a .py file by its path: no import finds their module."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, type | FunctionType) or not value.__module__.startswith(FILE_MODULE):
            return NotImplemented
        return _find_outside, (value.__module__.removeprefix(FILE_MODULE), value.__qualname__)


def _find_outside(path: str, name: str) -> Any:
    return attrgetter(name)(import_outside(path))


def pickled(value: Any) -> bytes:
    """Return a value for the process at the other end."""
    buffer = io.BytesIO()
    _Pickler(buffer, 5).dump(value)
    return buffer.getvalue()


def pickle_loader(loader: Loader) -> bytes:
    """Return a loader as another process opens it. Raises `ConfigError` if its source cannot be pickled."""
    try:
        return pickled(loader)
    except _PICKLE_ERRORS as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(unusable_source(type(loader.source).__name__, reason)) from None


def unusable_source(name: str, reason: str) -> str:
    """Return the message for a source that another process cannot open."""
    fix = "define it in a module, without open files, locks and lambdas, or use decode=threads"
    return f"data.decode=processes: {name} cannot be opened in another process ({reason}); {fix}"


def tensors_bytes(specs: Mapping[str, TensorSpec], count: int) -> int:
    """Return the bytes of shared memory for the tensors of `count` samples."""
    return sum(_aligned(spec.num_bytes * count) for spec in specs.values())


def shared_tensors(memory: mmap.mmap, specs: Mapping[str, TensorSpec], count: int) -> dict[str, Tensor]:
    """Return the tensors of `count` samples in shared memory, one after another."""
    found = {}
    first = 0
    for name, spec in specs.items():
        num_bytes = spec.num_bytes * count
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=num_bytes, offset=first)
        found[name] = flat.view(spec.dtype).view(count, *spec.shape)
        first += _aligned(num_bytes)
    return found


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


@contextmanager
def _anonymous_file(num_bytes: int) -> Iterator[int]:
    """Open a file without a name, in memory where the system has such: nothing remains of it."""
    if sys.platform == "linux":
        handle = os.memfd_create("paragan-decode")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        os.ftruncate(handle, num_bytes)
        yield handle
    finally:
        os.close(handle)
