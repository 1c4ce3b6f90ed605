"""Functions whose kernel launches are recorded once and replayed as one (CUDA graphs)."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_WARM_UP = 2  # calls before the recording, in which libraries allocate memory

Work = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


class Graph:
    """Recorder of the kernel launches of a CUDA device."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def warm_up(self, work: Work, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Run the work on a side stream, as a recording does."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results = work(tensors)
        torch.cuda.current_stream().wait_stream(stream)
        return results

    def record(self, work: Work, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Record the work without running it."""
        # other threads may use the device meanwhile: those that write, or exchange genomes
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            return work(tensors)

    def replay(self) -> None:
        """Run the recorded work."""
        self._graph.replay()


class RecordedFunction:
    """Function of named tensors whose launches are replayed from the third call on.

    work: may also change tensors that it holds. Names, shapes and addresses must be equal in every
    call, and the work may depend on no other host values. The next call overwrites the results.
    """

    def __init__(self, work: Work, graph: Graph) -> None:
        self._work = work
        self._graph = graph
        self._calls = 0
        self._inputs: Mapping[str, Tensor] = {}
        self._results: Mapping[str, Tensor] = {}

    def __call__(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        self._calls += 1
        if self._calls <= _WARM_UP:
            return self._graph.warm_up(self._work, tensors)
        if self._calls == _WARM_UP + 1:
            self._inputs = {name: value.clone() for name, value in tensors.items()}
            self._results = self._graph.record(self._work, self._inputs)
        else:
            # A replay reads the addresses of the recording, so new values are copied to them.
            for name, value in tensors.items():
                self._inputs[name].copy_(value, non_blocking=True)
        self._graph.replay()
        return self._results


def graph_factory(device: torch.device) -> Callable[[], Graph] | None:
    """Return the recorder of this device; None if it cannot record."""
    return Graph if device.type == "cuda" else None
