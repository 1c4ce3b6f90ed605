"""Sources of samples that a program passes: tensors by name, a `Dataset` of torch, or an iterable."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.not_finite import CAUSES, rows_not_finite
from paragan.core.outside_code import reraise_outside_errors
from paragan.core.printable import counted, join_some
from paragan.core.source import Source, StreamedSource, dtype_name
from paragan.datasets.base.column_names import split_names
from paragan.datasets.base.in_memory import compute_fingerprint
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.samples import SampleForm, as_tensor, cast, cast_notices, check_names, flat_label

MAX_PROCESSES = 4  # that read a data set ahead; more than cores, as samples may wait for storage
_HASHED = 64  # rows that identify tensors
MAX_NOT_FINITE = 0.05  # of all training rows
_SLOW_S = 5e-4  # of one sample, from which processes pay
_DRAWS = threading.Lock()  # the global generators are those of the process


class TensorSource(Source):
    """A `Source` of tensors by name, in memory; their first axis is the samples.

    Arrays and tables (`column_names`) are converted. A list of tensors has samples of different lengths, which are
    padded (`ragged`). dtype: of the networks' weights, to which floating-point numbers are cast; None: none are.
    max_not_finite: share of samples with NaN or infinity; more of them raise `DataError`.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        padding: Padding,
        dtype: torch.dtype | None = None,
        max_not_finite: float = MAX_NOT_FINITE,
    ) -> None:
        arrays, self.column_names = split_names(data)
        columns = _columns(arrays)
        self._count = _num_samples(columns)
        self.notices = cast_notices({name: column[0] for name, column in columns.items()}, dtype)
        self._stacked: dict[str, Tensor] = {}
        self._ragged: dict[str, list[Tensor]] = {}
        for name, column in columns.items():
            if isinstance(column, Tensor) and name not in padding.axes:
                self._stacked[name] = cast(flat_label(column, name, 1), dtype).detach().cpu()
            else:
                self._ragged[name] = [cast(row, dtype) for row in column]
        samples: Mapping[str, Tensor | list[Tensor]] = {**self._stacked, **self._ragged}
        for name in columns:
            titles = self.column_names.get(name, ())
            self.notices += _notice_not_finite(name, samples[name], columns[name], titles, max_not_finite)
        self.notices_not_finite = True  # so that the training loop need not
        first = {name: samples[name][0] for name in columns}
        self._padding = padding.checked(first).including(self._ragged)
        axes = self._padding.axes
        longest = {name: max(row.shape[axes[name]] for row in rows) for name, rows in self._ragged.items()}
        self.tensors = self._padding.specs(first, longest)
        hashed_rows = np.linspace(0, self._count - 1, min(self._count, _HASHED)).astype(np.int64)
        tensors = [tensor.contiguous().view(-1) for tensor in self.fetch(hashed_rows).values()]
        content = [tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors]
        self.fingerprint = compute_fingerprint(self._count, self.tensors, *content)

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return copies of rows. indices: int64 array (B,) in [0, N)."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        tensors = {name: values.index_select(0, rows) for name, values in self._stacked.items()}
        ragged = {name: [values[row] for row in rows.tolist()] for name, values in self._ragged.items()}
        return {**tensors, **self._padding.stacked(ragged)}

    def row_labels(self) -> NDArray[np.int64] | None:
        """Return the tensor `label` of whole numbers (N,) as int64; None without one."""
        label_N = self._stacked.get("label")
        if label_N is None or label_N.is_floating_point() or label_N.is_complex() or label_N.dim() != 1:
            return None
        return label_N.long().numpy()


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


def _columns(data: Mapping[str, Any]) -> dict[str, Tensor | list[Tensor]]:
    """Return all samples by name: a tensor, or a list of tensors that may differ in length."""
    check_names(data)
    columns: dict[str, Tensor | list[Tensor]] = {}
    for name, values in data.items():
        if not isinstance(values, (list, tuple)):
            columns[name] = as_tensor(values, name, "data: the mapping")
            continue
        rows = [as_tensor(row, name, f"data: sample {number}") for number, row in enumerate(values)]
        has_numbers = bool(rows) and not any(row.dim() for row in rows)
        columns[name] = torch.stack(rows) if has_numbers else rows
    return columns


def _num_samples(columns: Mapping[str, Tensor | list[Tensor]]) -> int:
    """Return the length of all columns. Raises `DataError` if they differ or there are no samples."""
    counts = {name: 0 if isinstance(rows, Tensor) and not rows.dim() else len(rows) for name, rows in columns.items()}
    lengths = ", ".join(f"{name} {count}" for name, count in counts.items()) or "no tensor"
    if len(set(counts.values())) > 1:
        raise DataError(f"data: tensors need one first axis, the samples; found {lengths}")
    if not any(counts.values()):
        raise DataError(f"data: there are no samples ({lengths}); pass tensors of at least one, along their first axis")
    return max(counts.values())


def _notice_not_finite(
    name: str, samples: Tensor | list[Tensor], stored: Tensor | list[Tensor], columns: Sequence[str], max_share: float
) -> tuple[str, ...]:
    """Return a line about samples that are not finite. stored: before the cast. Raises `DataError` for many."""
    if isinstance(samples, Tensor):
        rows = rows_not_finite(samples)
    else:
        rows = [row for row, sample in enumerate(samples) if rows_not_finite(sample[None])]
    if not rows:
        return ()
    first = samples[rows[0]]
    place = tuple((~first.isfinite()).nonzero()[0].tolist())  # empty: a sample is one number
    where = f", at {list(place)}" if place else ""
    if columns:
        where = f", column {columns[place[0]]!r}"
    value = stored[rows[0]][place]
    what, cure = "is not finite", f"leave them out or replace the values {CAUSES}"
    if value.isfinite():
        what = f"has {value.item():.3g}, beyond {dtype_name(first.dtype)},"
        cure = "divide it by its largest number, or leave them out"
    text = (
        f"data: {name} {what} in {len(rows):,} of {counted(len(samples), 'sample')}, number {join_some(rows, 3)}{where}"
    )
    if len(rows) > max_share * len(samples):  # few batches would be without one
        raise DataError(f"{text}; {cure}")
    return (f"{text}: updates on them are skipped; {cure}",)


def _name_of(named: Any) -> str:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(named).__qualname__)}"
