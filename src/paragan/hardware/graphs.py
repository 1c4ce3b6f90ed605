"""Work that a device records once, and then starts as one: the host launches nothing but its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

_WARM_UP = 2  # calls before the recording, in which libraries get their memory

Work = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


class Graph(Protocol):
    """What a device records."""

    # runs it, as itself
    def warm_up(self, work: Work, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]: ...

    # runs nothing
    def record(self, work: Work, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]: ...

    def replay(self) -> None: ...


class RecordedFunction:
    """As `work`, a function of named tensors, which may also change tensors that it finds elsewhere.

    Names, shapes and what it finds elsewhere stay where they are from call to call, and the work
    depends on nothing else that the host knows. What it returns is overwritten by the next call.
    """

    def __init__(self, work: Work, graph: Graph) -> None:
        self._work = work
        self._graph = graph
        self._calls = 0
        self._given: Mapping[str, Tensor] = {}
        self._found: Mapping[str, Tensor] = {}

    def __call__(self, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        self._calls += 1
        if self._calls <= _WARM_UP:
            return self._graph.warm_up(self._work, given)
        if self._calls == _WARM_UP + 1:
            self._given = {name: value.clone() for name, value in given.items()}
            self._found = self._graph.record(self._work, self._given)
        else:
            for name, value in given.items():
                self._given[name].copy_(value, non_blocking=True)
        self._graph.replay()
        return self._found


class _Cuda:
    """Fulfils `Graph`."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def warm_up(self, work: Work, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Beside the stream that everything else is on, as the recording is."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = work(given)
        torch.cuda.current_stream().wait_stream(stream)
        return found

    def record(self, work: Work, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # other threads of this process may use the device meanwhile: those that write, or exchange genomes
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            return work(given)

    def replay(self) -> None:
        self._graph.replay()


def graph_factory(device: torch.device) -> Callable[[], Graph] | None:
    """How this device records; None: it does not."""
    return _Cuda if device.type == "cuda" else None
