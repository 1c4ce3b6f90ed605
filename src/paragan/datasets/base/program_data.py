"""Sources of samples that a program passes: a `Dataset` of torch, or an iterable; tensors are a `TensorSource`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.outside_code import reraise_outside_errors
from paragan.core.source import Source, StreamedSource
from paragan.datasets.base.in_memory import compute_fingerprint
from paragan.datasets.base.samples import SampleForm

MAX_PROCESSES = 4  # that read a data set ahead; more than cores, as samples may wait for storage
_SLOW_S = 5e-4  # of one sample, from which processes pay
_DRAWS = threading.Lock()  # the global generators are those of the process


class DatasetSource(Source):
    """A `Source` of a map-style `Dataset`: of torch, of Hugging Face, or a list.

    What a sample draws from the generators of torch, numpy and `random` is seeded by its place in
    the stream of batches, so a resumed run, or one on other ranks, draws the same. As these are the
    generators of the process, from which networks draw, too, no other thread of it reads ahead.
    """

    is_read_by_processes = True

    def __init__(self, dataset: Dataset[Any], form: SampleForm) -> None:
        self.argument = form.argument
        self._dataset = dataset
        self._num_processes: int | None = None
        self._start: Callable[[int], None] | None = None
        self._sample_s = math.inf
        if not len(self):
            raise DataError(f"data: {type(dataset).__name__} has no samples: its length is 0; pass at least one sample")
        (first,) = self._drawn([0], [0], 0)
        self._form, self.tensors, self.notices = form.of_first(first)
        label = (getattr(dataset, "features", None) or {}).get("label")
        self.class_names = tuple(getattr(label, "names", ())) if "label" in self.tensors else ()
        self.fingerprint = compute_fingerprint(_name_of(type(dataset)), len(self), self.tensors)

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return samples, stacked. Raises `DataError` for one that differs from the first."""
        rows = [int(row) for row in indices]
        drawn = self._drawn(rows, rows if places is None else places, seed)
        return self._form.stacked(list(zip(rows, drawn, strict=True)), self.tensors)

    def _drawn(self, rows: Sequence[int], places: Iterable[int], seed: int) -> list[Any]:
        samples = []
        with _DRAWS, rng.preserved_globally():
            for row, place in zip(rows, places, strict=True):
                rng.seed_host(rng.key(seed, "dataset", int(place)))
                began = time.perf_counter()
                with reraise_outside_errors(f"{self.argument}: sample {row}", DataError):
                    samples.append(self._dataset[row])
                self._sample_s = min(self._sample_s, time.perf_counter() - began)
        return samples

    def use_processes(self, num: int, start: Callable[[int], None] | None) -> None:
        """Have `num` processes read ahead, however long a sample takes. start: is called in each."""
        self._num_processes = num
        self._start = start

    def num_processes(self, wanted: int | None) -> int:
        """Return how many processes may read ahead; none for what they cannot share."""
        automatic = MAX_PROCESSES if self._sample_s > _SLOW_S else 0
        num = next(number for number in (wanted, self._num_processes, automatic) if number is not None)
        if num and (obstacle := obstacle_to_sharing(self._dataset)):
            self.notices += (
                f"data: {type(self._dataset).__name__} is read in the training process, because processes that read "
                f"ahead cannot share it ({obstacle}): create such objects where a sample is read",
            )
            return 0
        return num

    def start_process(self, number: int) -> None:
        """Call `start`, as a `DataLoader` calls its `worker_init_fn`."""
        global _DRAWS
        _DRAWS = threading.Lock()  # another thread may have held it when this process was forked
        if self._start is not None:
            self._start(number)


class IterableSource(StreamedSource):
    """A `Source` whose samples come in the order of an iterable, which is made for each epoch."""

    def __init__(self, make: Callable[[int], Iterable[Any]], form: SampleForm) -> None:
        self.argument = form.argument
        self._make = make
        with reraise_outside_errors(f"{self.argument}: sample 0 of epoch 0", DataError):
            first = next(iter(make(0)), None)
        if first is None:
            raise DataError("data: the iterable of epoch 0 has no samples; let it have at least one")
        self._form, self.tensors, self.notices = form.of_first(first)
        self.fingerprint = compute_fingerprint(_name_of(make), self.tensors)

    def __len__(self) -> int:
        return 0

    def samples(self, epoch: int) -> Iterator[Any]:
        """Return the samples of an epoch."""
        return iter(self._make(epoch))

    def stacked(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """Return samples, stacked. Raises `DataError` for one that differs from the first."""
        return self._form.stacked(list(enumerate(samples)), self.tensors)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return as many samples from the begin of epoch 0, repeated if there are fewer."""
        with reraise_outside_errors(f"{self.argument}: epoch 0", DataError):
            samples = list(islice(self.samples(0), len(indices)))
        return self.stacked([samples[number % len(samples)] for number in range(len(indices))])


class _Probe(ForkingPickler):
    """A pickler that takes numbers and code as they are: forked processes have them."""

    def persistent_id(self, value: Any) -> int | None:
        return 0 if isinstance(value, Tensor | np.ndarray | type | ModuleType | FunctionType) else None


def obstacle_to_sharing(dataset: Any) -> str:
    """Return what processes cannot share of an object, such as an open file, whose position they would move; or ""."""
    if current_process().daemon:
        return "a daemon starts none"
    try:
        _Probe(SimpleNamespace(write=len)).dump(dataset)  # a file that holds nothing
    except Exception as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _name_of(named: Any) -> str:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(named).__qualname__)}"
