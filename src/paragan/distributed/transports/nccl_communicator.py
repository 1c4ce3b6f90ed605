"""Communicator of workers with an accelerator each: messages between device memories, by NCCL.

Everything else goes over gloo links, including the sizes of messages: a missing worker is found
there, by name and in time, and the NCCL groups, one for any two workers that exchange, carry only
data that both ends are ready for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.distributed.transports.gloo_communicator import GlooCommunicator, PairConnector, pair_name
from paragan.distributed.transports.waiting import Backoff, check_size, failed_error, wait_until

Pair = Callable[[dist.Store, int, torch.device, float], Any]

_ON_LINK = -1  # marker instead of a length
_PAUSE_S = (2e-5, 1e-3)
_REPORT_S = 1.0  # in which the link of an unreachable worker reports it, before a group does
_FAREWELL_S = 0.8


class NcclCommunicator(GlooCommunicator):
    """`Communicator` whose `exchange` sends messages on `device` to the devices of the peers.

    Small messages may be on the host. After `abort`, the last messages of this worker may not
    arrive; over links they would.

    pair: creates the group of two workers from their store, the rank there, the device and a
    time-out, once both are present: it has `send`, `recv` and `abort`, and its works have
    `is_completed`. Raises `ConfigError` if it fails though both workers are alive. place, options:
    those of `GlooCommunicator`.
    """

    def __init__(
        self, store: dist.Store, name: str, *place: Any, device: torch.device, pair: Pair, **options: Any
    ) -> None:
        super().__init__(store, name, *place, **options)
        self.device = device
        self._groups: dict[int, Any] = {}
        try:
            own = store.clone()  # type: ignore[attr-defined]
            self._connect(dist.PrefixStore(f"{name}/direct", own), pair)
        except BaseException:
            self.abort()
            raise

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """Exchange sizes and host messages over the links first, then all device data at once."""
        going = {peer: [t for t in tensors if is_on_device(self.device, t)] for peer, tensors in sends.items()}
        heads = {peer: self._header(tensors) for peer, tensors in sends.items()}
        headers = self.exchange_with_root(heads)
        with self._recording_failure():
            room = {peer: self._room(peer, *parts) for peer, parts in headers.items()}
            self._swap(going, {peer: coming for peer, (coming, _) in room.items()})
        return {peer: found for peer, (_, found) in room.items()}

    def _header(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        sizes = [len(t) if is_on_device(self.device, t) else _ON_LINK for t in tensors]
        head = torch.tensor(sizes, dtype=torch.int64).view(torch.uint8)
        return [head, *(t for t in tensors if not is_on_device(self.device, t))]

    def _room(self, peer: int, head: Tensor, *on_host: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return receive buffers on the device, and all received messages in their order."""
        sizes = head.view(torch.int64).tolist()
        lengths = [check_size(size, self.most_bytes, peer) for size in sizes if size != _ON_LINK]
        coming = [torch.empty(n, dtype=torch.uint8, device=self.device) for n in lengths]
        ways = iter(coming), iter(on_host)
        return coming, [next(ways[size == _ON_LINK]) for size in sizes]

    def _swap(self, going: Mapping[int, Sequence[Tensor]], coming: Mapping[int, Sequence[Tensor]]) -> None:
        """Start all transfers, then wait for them.

        A device runs the calls of a group one after another, and possibly those of several groups.
        So all workers use their links in one order, by rank, and each pair transfers to its higher
        rank first, which avoids deadlocks.
        """
        works: dict[int, list[Any]] = {}
        for peer in sorted(going):
            group = self._groups[peer]
            other = int(self.rank < peer)
            calls = [(group.send, going[peer]), (group.recv, coming[peer])]
            with _worker_errors(peer):
                for call, tensors in calls if other else reversed(calls):
                    works.setdefault(peer, []).extend(call([t], other, 0) for t in tensors if len(t))

        def missing() -> list[int]:
            for peer in list(works):
                with _worker_errors(peer):
                    if all(work.is_completed() for work in works[peer]):
                        for work in works.pop(peer):
                            work.wait()  # raises the error of the transfer, if any
            return sorted(works)

        self._await(missing, Backoff(*_PAUSE_S))

    def _connect(self, store: dist.Store, pair: Pair) -> None:
        """Create the groups, in a thread, since that does not check `stopped`."""

        def connect(peer: int) -> Any:
            own = dist.PrefixStore(pair_name(self.rank, peer), store)
            if self._has_left:
                return None
            try:
                return pair(own, int(self.rank > peer), self.device, self._arrivals.timeout_s)
            except RuntimeError:
                time.sleep(_REPORT_S)
                raise

        connector = PairConnector(self.peers, connect)
        self._groups = connector.groups

        def missing() -> list[int]:
            if connector.error is not None:
                (peer,) = connector.missing
                problem = f"no connection from worker {self.rank}'s accelerator to worker {peer}'s"
                why = " ".join(str(connector.error).split())[:200]
                raise ConfigError(f"transport: {problem} ({why}); use gloo") from connector.error
            return connector.missing

        with self._recording_failure():
            self._await(missing, Backoff(1e-3, 0.05))

    def _await(self, missing: Callable[[], list[int]], rest: Callable[[float], object]) -> None:
        """Wait with a time-out; raise if a missing worker failed (one that closed sent all)."""

        def missing_and_alive() -> list[int]:
            left = missing()
            for peer in left:
                error = self._arrivals.failure_of(peer)
                if error is not None and not self._arrivals.has_closed(peer):
                    raise error
            return left

        wait_until(missing_and_alive, self._arrivals.timeout_s, self._arrivals.stopped, rest)

    def _leave(self, orderly: bool) -> None:
        """Abort all groups at once: one may wait on the device for another."""
        deadline = time.monotonic() + (self._arrivals.timeout_s if orderly else _FAREWELL_S)
        groups = self._groups.values()
        threads = [threading.Thread(target=_abort, args=(group,), daemon=True) for group in groups]
        for thread in threads:
            thread.start()
        super()._leave(orderly)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._groups.clear()


def is_on_device(device: torch.device, tensor: Tensor) -> bool:
    """Return whether a message is sent from the device."""
    return tensor.device == device


def _abort(group: Any) -> None:
    with suppress(RuntimeError):
        group.abort()


@contextmanager
def _worker_errors(peer: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise failed_error(peer, error) from error
