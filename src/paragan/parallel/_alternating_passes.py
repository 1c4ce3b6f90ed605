"""Micro-batches of a turn with forwards and backwards in turns: one forward, one backward (1F1B).

Each micro-batch runs in a thread, one thread at a time: it runs until it has sent rows to other
ranks, and receives what they sent when it runs again, after all others that have begun. One more
begins in every second round. So a rank runs one backward between two forwards, and holds the
activations of as many micro-batches as a round trip takes, not of all (Narayanan et al. 2019,
section 3.2). All ranks have the same order, so messages need no numbers.

The graph ends at each move between ranks, and `backward` goes through the moves in Python: torch's
engine would run a backward of the whole graph at once. Input gradients with a graph are therefore
not available here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from paragan.core.phases import set_thread_clock, thread_clock

T = TypeVar("T")
_JOIN_S = 60.0
_thread = threading.local()


class Move(Protocol):
    """A move of rows between ranks."""

    def transfer(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...

    def back(self) -> Move: ...


class _Cancelled(BaseException):
    """Ends a micro-batch after another one has failed."""


class MicroBatchThread:
    """One micro-batch that runs until it pauses. run: returns its result.

    is_backward: whether its backward has begun.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        self.result: Any = None
        self.is_done = False
        self.is_backward = False
        self._run = run
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._resumed = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        # None: end of a chunk
        self._cuts: list[tuple[Move, list[Tensor], list[Tensor]] | None] = []
        device = None
        if torch.accelerator.is_available():
            device = torch.accelerator.current_device_index()
        context = (thread_clock(), torch.get_num_threads(), device)
        self._thread = threading.Thread(target=self._main, args=context, daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Run to the next pause or the end; raises the error of the micro-batch."""
        self._resumed.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the thread."""
        self._is_cancelled = True
        self._resumed.release()
        self._thread.join(_JOIN_S)

    def pause(self) -> None:
        """Let the other micro-batches run. Called by its thread."""
        self._paused.release()
        self._resumed.acquire()
        if self._is_cancelled:
            raise _Cancelled

    def move(self, move: Move, tensors: Sequence[Tensor], is_recorded: bool) -> list[Tensor]:
        """Move rows of tensors; a recorded move is part of `backward`."""
        moved = move.transfer([tensor.detach() for tensor in tensors])
        numbers = []
        if is_recorded:
            numbers = [n for n, tensor in enumerate(moved) if tensor.is_floating_point()]
        for n in numbers:
            moved[n].requires_grad_()
        if numbers:
            self._cuts.append((move, [tensors[n] for n in numbers], [moved[n] for n in numbers]))
        return moved

    def end_chunk(self) -> None:
        """Pause, also where the backward gets here."""
        if torch.is_grad_enabled():
            self._cuts.append(None)
        self.pause()

    def backward(self, roots: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Run a backward pass through all recorded moves.

        What lies between moves can be reached from several of them, so no backward frees the graph.
        """
        self.is_backward = True
        torch.autograd.backward(roots, gradients, retain_graph=True)
        while self._cuts:
            cut = self._cuts.pop()
            if cut is None:
                self.pause()
                continue
            move, inputs, outputs = cut
            if all(out.grad is None for out in outputs):  # unused, on all ranks
                continue
            grads = [torch.zeros_like(out) if out.grad is None else out.grad for out in outputs]
            del cut, outputs
            moved = move.back().transfer(grads)
            pairs = [pair for pair in zip(inputs, moved, strict=True) if pair[0].requires_grad]
            del inputs
            if pairs:
                tensors = [tensor for tensor, _ in pairs]
                torch.autograd.backward(tensors, [grad for _, grad in pairs], retain_graph=True)

    def _main(self, clock: Any, num_threads: int, device: int | None) -> None:
        self._resumed.acquire()
        torch.set_num_threads(num_threads)  # this, the device and the clock are set per thread
        if device is not None:
            torch.accelerator.set_device_index(device)
        set_thread_clock(clock)
        _thread.micro_batch = self
        try:
            if not self._is_cancelled:
                self.result = self._run()
        except BaseException as error:
            self._error = error
        self.is_done = True
        self._paused.release()


def running_micro_batch() -> MicroBatchThread | None:
    """Return the micro-batch of this thread; None: micro-batches run one after the other."""
    return getattr(_thread, "micro_batch", None)


def pause(rounds: int = 1) -> None:
    """Let other micro-batches of the turn run, if there are any."""
    if (running := running_micro_batch()) is not None:
        for _ in range(rounds):
            running.pause()


def slack_rounds(num_ranks: int) -> int:
    """Return the rounds after which a rank waits for what all ranks of a pipeline send.

    In the first round some would still run another pass. More rounds are closer to the bubble of
    Huang et al. 2019, section 2.3, and hold more outputs; these are within a tenth.
    """
    return max(2, num_ranks // 2)


def end_chunk() -> None:
    """Let other micro-batches run between two chunks of blocks, on all ranks and in both passes."""
    if (running := running_micro_batch()) is not None:
        running.end_chunk()


def run_alternating(runs: Sequence[Callable[[], T]], end_round: Callable[[bool], None]) -> list[T]:
    """Run all micro-batches, and return their results.

    end_round: called after each round; with True after the last one.
    """
    threads: list[MicroBatchThread] = []
    active: list[MicroBatchThread] = []
    number = 0
    try:
        while active or len(threads) < len(runs):
            if number % 2 == 0 and len(threads) < len(runs):
                threads.append(MicroBatchThread(runs[len(threads)]))
                active.append(threads[-1])
            for thread in active:
                thread.advance()
            active = [thread for thread in active if not thread.is_done]
            number += 1
            end_round(False)
    finally:
        for thread in active:
            thread.cancel()
    end_round(True)
    return [thread.result for thread in threads]
