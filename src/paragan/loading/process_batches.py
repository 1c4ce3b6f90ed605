"""Batches that processes of torch's `DataLoader` fetch ahead of the consumer."""

import itertools
import os
import signal
import threading
import time
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from paragan.core.errors import DataError, ParaganError
from paragan.core.source import Source
from paragan.loading.loader import BatchStream, Loader

_POLL_S = 5.0  # between two looks at the processes


class ProcessBatches(BatchStream):
    """Batches of a loader, each fetched by one of `num` processes, `ahead` of them before they are needed.

    A batch depends on its position only, as in `Loader`, so neither the processes nor a restart change it.
    They start at the first batch, and after `position` was set, and end with `close`, or with this process,
    however that ends. timeout_s: raises `DataError` if a batch takes longer, as for an error in a process.
    """

    def __init__(self, loader: Loader, num: int, ahead: int, timeout_s: float) -> None:
        super().__init__(loader.source, loader.rows, loader.device, loader.dtype)
        self._loader = loader
        self._num = num
        self._ahead = ahead
        self._timeout_s = timeout_s
        self._fetched: Any = None  # iterator of a `DataLoader`
        self._next = 0  # position of the next of these

    def fetch_next(self) -> dict[str, Tensor]:
        if self._fetched is None or self._next != self.position:
            self.close()
            with warnings.catch_warnings():
                # there may be more processes than cores, as samples wait for storage
                warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
                self._fetched = self._start()
        fetched = self._take()
        self._next = self.position + 1
        if isinstance(fetched, ParaganError):
            raise fetched
        return self._loader.checked(fetched, *self._loader.rows_at(self.position))

    def close(self) -> None:
        """End the processes."""
        if self._fetched is not None:
            # called here, since the traceback of an error may hold a reference and keep the processes
            self._fetched._shutdown_workers()
        self._fetched = None

    def _start(self) -> Any:
        loader: DataLoader[Any] = DataLoader(
            _Fetch(self._loader),  # type: ignore[arg-type]
            batch_size=None,
            sampler=itertools.count(self.position),  # type: ignore[arg-type]
            num_workers=self._num,
            prefetch_factor=-(-self._ahead // self._num),
            pin_memory=self._loader.is_pinned,
            timeout=min(_POLL_S, self._timeout_s),  # after which torch sees whether the processes are alive
            worker_init_fn=partial(_begin, self.source),
        )
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGCHLD) if is_main else None
        fetched = iter(loader)
        if is_main:  # the handler of torch would raise in the middle of a step, for a process that `_take` looks at
            signal.signal(signal.SIGCHLD, handler)
        return fetched

    def _take(self) -> Mapping[str, Tensor] | ParaganError:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return next(self._fetched)  # type: ignore[no-any-return]
            except RuntimeError as error:
                text = str(error).splitlines()[0]
                if "timed out" in text and time.monotonic() < deadline:
                    continue
                self.close()
                if "timed out" in text:
                    text = f"it was not read within {self._timeout_s:g} s; increase train.timeout_s"
                raise DataError(
                    f"data: batch {self.position}: {text} (loading.prefetch=0 reads in the training process)"
                ) from error


class _Fetch:
    """What the processes call: the tensors of a batch by position, or the error in their place."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getitem__(self, position: int) -> Mapping[str, Tensor] | ParaganError:
        rows, places = self._loader.rows_at(position)
        try:
            return self._loader.source.fetch(rows, places, self._loader.seed)
        except ParaganError as error:
            return error


def _begin(source: Source, number: int) -> None:
    """Prepare a process: Ctrl-C in a terminal is for the run, which ends it."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    source.start_process(number)
