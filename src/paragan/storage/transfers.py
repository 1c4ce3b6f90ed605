"""Requests that run in parallel, are repeated after transient failures, and are hedged.

Hedging: a request that is slower than most is sent a second time, and the first response counts.
Source: J. Dean and L. A. Barroso, "The tail at scale", CACM 56(2), 2013.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from paragan.core.errors import DataError
from paragan.storage.request_client import TransientError
from paragan.storage.request_latency import RequestLatency
from paragan.storage.request_pool import RequestPool

_MAX_REQUESTS = 64  # at once, of a store
_MAX_HEDGED_BYTES = 1 << 20  # larger responses take long because they are large
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0
_NUM_TRIES = 9  # with pauses of 20 s together
_CHECK_S = 0.2  # longest time between two checks for requests that are late


@dataclass
class Transfer:
    """A request until one response counts. call: returns it. num_bytes: its length; None: any.

    where: the file in messages.
    """

    call: Callable[[], bytes]
    num_bytes: int | None
    where: str
    result: bytes | None = None
    num_failed: int = 0
    num_running: int = 0
    is_hedged: bool = False
    pause_until: float | None = None
    began: float | None = None  # the newest attempt

    @property
    def is_hedgeable(self) -> bool:
        """Whether a second request may be sent, because the response is small."""
        return self.num_bytes is not None and self.num_bytes <= _MAX_HEDGED_BYTES


@dataclass
class RequestCounts:
    """Requests of a store since it was opened: sent, sent again after a failure, hedged; bytes received."""

    sent: int = 0
    repeated: int = 0
    hedged: int = 0
    num_bytes: int = 0


_Outcomes = SimpleQueue[tuple[Transfer, bytes | Exception]]


class Transfers:
    """Runs transfers of many threads; `run` returns when all have a result.

    timeout_s: after which an attempt that did not end by itself is given up. num_tries: failures after
    which a transfer raises `DataError`.
    """

    def __init__(self, timeout_s: float, num_tries: int = _NUM_TRIES) -> None:
        self.counts = RequestCounts()
        self._timeout_s = timeout_s
        self._num_tries = num_tries
        self._pool = RequestPool(_MAX_REQUESTS)
        self._latency = RequestLatency()

    def run(self, transfers: Sequence[Transfer]) -> None:
        """Set the result of each transfer; `DataError` for the first that fails."""
        outcomes: _Outcomes = SimpleQueue()
        for transfer in transfers:
            self._start(transfer, outcomes)
        missing = len(transfers)
        progress = time.monotonic()
        next_check = progress
        while missing:
            now = time.monotonic()
            if now >= next_check:
                next_check = now + self._check_late(transfers, outcomes, now)
            try:
                transfer, outcome = outcomes.get(timeout=next_check - now if next_check > now else 0.0)
            except Empty:
                if now - progress > self._timeout_s + _MAX_PAUSE_S:
                    where = next(each.where for each in transfers if each.result is None)
                    raise DataError(f"{where}: no response within {self._timeout_s:g} s; {_CHECK}") from None
                continue
            progress = now
            is_new = transfer.result is None
            self._finish(transfer, outcome)
            missing -= is_new and transfer.result is not None

    def _start(self, transfer: Transfer, outcomes: _Outcomes) -> None:
        transfer.num_running += 1
        transfer.pause_until = None
        transfer.began = None
        self.counts.sent += 1
        self._pool.submit(lambda: self._attempt(transfer, outcomes))

    def _attempt(self, transfer: Transfer, outcomes: _Outcomes) -> None:
        """Send the request, in a thread of the pool."""
        began = time.monotonic()
        transfer.began = began
        try:
            response = transfer.call()
            if transfer.num_bytes not in (None, len(response)):
                raise TransientError(f"{len(response):,} of {transfer.num_bytes:,} bytes arrived")
        except Exception as error:
            outcomes.put((transfer, error))
            return
        if transfer.is_hedgeable:
            self._latency.add(time.monotonic() - began)
        outcomes.put((transfer, response))

    def _finish(self, transfer: Transfer, outcome: bytes | Exception) -> None:
        """Store the response, or let the transfer pause after a failure."""
        transfer.num_running -= 1
        if transfer.result is not None:
            return
        if isinstance(outcome, bytes):
            transfer.result = outcome
            self.counts.num_bytes += len(outcome)
            return
        if not isinstance(outcome, TransientError):
            raise outcome
        transfer.num_failed += 1
        if transfer.num_failed >= self._num_tries:
            raise DataError(f"{transfer.where}: {outcome}, after {transfer.num_failed} tries; {_CHECK}")
        if not transfer.num_running:  # else the other attempt may succeed
            pause = min(_FIRST_PAUSE_S * 2 ** (transfer.num_failed - 1), _MAX_PAUSE_S)
            transfer.pause_until = time.monotonic() + pause * random.uniform(0.5, 1.0)

    def _check_late(self, transfers: Sequence[Transfer], outcomes: _Outcomes, now: float) -> float:
        """Repeat failed requests after their pause and hedge slow ones; return when to check again, in s."""
        hedge_after_s = self._latency.hedge_after_s()
        for transfer in transfers:
            if transfer.result is not None:
                continue
            if transfer.pause_until is not None and transfer.pause_until <= now:
                self.counts.repeated += 1
                self._start(transfer, outcomes)
            elif self._is_late(transfer, hedge_after_s, now) and self._latency.take_hedge():
                transfer.is_hedged = True
                self.counts.hedged += 1
                self._start(transfer, outcomes)
        return min(_CHECK_S, _FIRST_PAUSE_S / 4 if hedge_after_s is None else max(hedge_after_s / 4, 0.002))

    def _is_late(self, transfer: Transfer, hedge_after_s: float | None, now: float) -> bool:
        if hedge_after_s is None or transfer.is_hedged or not transfer.is_hedgeable or transfer.began is None:
            return False
        return transfer.num_running == 1 and now - transfer.began > hedge_after_s


_CHECK = "check the network and the server, then run the command again"
