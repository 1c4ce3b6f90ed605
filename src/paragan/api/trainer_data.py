"""Data of `paragan.Trainer` as a source: tensors, tables, data sets, loaders, iterables."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from paragan.core.errors import ConfigError, DataError
from paragan.core.source import Source, describe_tensors, dtype_name
from paragan.datasets.base.column_names import is_table
from paragan.datasets.base.program_data import DatasetSource, IterableSource
from paragan.datasets.base.samples import SampleForm
from paragan.datasets.base.tensor_source import MAX_NOT_FINITE, TensorSource


def source_of(data: Any, form: SampleForm, sample: str | None) -> Source:
    """Return the data of a program as a source. sample: name of a single tensor.

    A `Source` is one already; tables, arrays and tensors make a `TensorSource`, data sets with a length a
    `DatasetSource`, functions of the epoch and iterables an `IterableSource`; paths and iterators are refused.
    """
    name = form.argument
    if isinstance(data, Source):
        _check_format(data, form)
        if data.argument != name:
            data = copy(data)  # it may be the training data, too
            data.argument = name
        return data
    if isinstance(data, str | PathLike):
        raise ConfigError(f"{name} is a path; train on files with pg.train('own', {{'data.path': {str(data)!r}}})")
    if is_table(data) or isinstance(data, Tensor | np.ndarray):
        data = {sample or "sample": data}
    if isinstance(data, Mapping):
        # no update skips a held-out sample: a score of it would be NaN
        max_not_finite = 0.0 if name == "held_out" else MAX_NOT_FINITE
        source = TensorSource(data, form.padding, form.dtype, max_not_finite)
        source.argument = name  # in messages of the run
        return source
    if isinstance(data, DataLoader):
        return _of_loader(data, form)
    if _has_rows(data):  # a map-style data set
        return DatasetSource(data, form)
    if callable(data):  # a function of the epoch
        return IterableSource(data, form)
    if isinstance(data, Iterable) and not isinstance(data, Iterator):  # an iterator ends after one epoch
        return IterableSource(_Epochs(data), form)
    hint = "pass a mapping of tensors, a Dataset with a length, a DataLoader, a function of the epoch, or a pg.Source"
    if isinstance(data, Iterator):
        hint = "it ends after one epoch: pass a function of the epoch that returns such an iterator"
    raise ConfigError(f"{name} is of type {type(data).__name__}; {hint}")


def held_out_source(data: object, form: SampleForm, sample: str | None) -> Source | None:
    """Return the held-out samples of a program as a source, None if there are none; errors name the argument."""
    try:
        return None if data is None else source_of(data, replace(form, argument="held_out"), sample)
    except DataError as error:
        raise DataError(str(error).replace("data:", "held_out:", 1)) from error


def check_held_out(held_out: Source | None, source: Source) -> None:
    """Raise `ConfigError` for held-out samples with other names, shapes or types than those trained on."""
    if held_out is not None and held_out.tensors != source.tensors:
        raise ConfigError(
            f"held_out: a held-out sample has {describe_tensors(held_out.tensors)}, a training sample "
            f"{describe_tensors(source.tensors)}; pass samples with equal names, shapes and types"
        )


def _check_format(source: Source, form: SampleForm) -> None:
    for tensor, spec in source.tensors.items():
        if spec.dtype.is_floating_point and spec.dtype != form.dtype:
            stored, kind = dtype_name(spec.dtype), dtype_name(form.dtype)
            raise ConfigError(f"{form.argument}: {tensor} is {stored}, and the weights are {kind}; return it as {kind}")


def _of_loader(loader: DataLoader[Any], form: SampleForm) -> Source:
    """Return the data set of a loader, which its workers read in the order of the run."""
    if loader.batch_size is None and loader.batch_sampler is None:
        raise ConfigError(f"{form.argument} is a DataLoader without batches (batch_size=None); pass its dataset")
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    source = source_of(loader.dataset, replace(form, collate=collate), None)
    used, unused = "dataset and collate_fn", "num_workers (a stream is read by this process), sampler"
    if isinstance(source, DatasetSource):
        source.use_processes(loader.num_workers, loader.worker_init_fn)
        used, unused = f"dataset, collate_fn and num_workers ({loader.num_workers})", "sampler"
    source.notices += (
        f"{form.argument}: the run uses {used} of the DataLoader, and ignores its {unused}, shuffle and batch_size: "
        "seed decides the order, and train.batch the batch size",
    )
    return source


def _has_rows(data: Any) -> bool:
    """Return whether samples are read by number."""
    read = getattr(type(data), "__getitem__", None)
    return read not in (None, Dataset.__getitem__) and hasattr(data, "__len__")  # an `IterableDataset` inherits it


class _Epochs:
    """A function of the epoch that returns the same iterable, which may take the epoch (`set_epoch`)."""

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data
        self.__qualname__ = type(data).__qualname__

    def __call__(self, epoch: int) -> Iterable[Any]:
        if hasattr(self._data, "set_epoch"):
            self._data.set_epoch(epoch)
        return self._data
