"""Data sources: samples of named tensors, and the declaration of these tensors."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.printable import join_some


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of one tensor of one sample. An axis of -1 has any length: (80, -1) is a spectrogram.

    padded_axis: an axis that is padded with zeros, to a length of `shape` or, for -1, to the longest of the batch; the
    tensor `NAME_mask` (L,) is True where the sample has values. None: no axis.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    padded_axis: int | None = None

    @property
    def is_image(self) -> bool:
        """Whether this is uint8 or uint16 (C, H, W), which the loader maps from 0…255 or 0…65535 to [-1, 1]."""
        return self.dtype in (torch.uint8, torch.uint16) and len(self.shape) == 3

    def fits(self, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
        """Return whether a sample of this shape and type has the declared ones."""
        sizes_fit = all(declared in (-1, size) for size, declared in zip(shape, self.shape, strict=False))
        return len(shape) == len(self.shape) and dtype == self.dtype and sizes_fit

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor of one sample; an axis of any length, -1, counts as 1."""
        return abs(math.prod(self.shape)) * self.dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class AudioFormat:
    """Format of the audio of a data set, which `audio_format(options)` of its file returns.

    sample_rate: samples a second. derived: what else a sample has, by name, computed from audio (B, channels, T).
    """

    sample_rate: int
    channels: int
    derived: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)


class Source(ABC):
    """Base class of one split of a data set: samples of named tensors, by index (`row`; `rows` and `indices`: several).

    tensors: what each sample consists of; images are called `image`, with `label` and `condition` if the data has
    them. class_names: empty without labels. notices: warnings, a line each: skipped images, folders that are no
    classes. reading: what samples are read from, for the start line. column_names: of tensors (K,), by tensor.
    not_finite: names of the samples with NaN or infinity that a run has read, and skips the updates of, as keys in
    the order of reading; None: such a sample raises `DataError`. notices_not_finite: the notices name these samples
    before they are read. fingerprint: equal for equal data; cheap, not computed from all samples. is_decoded: `fetch`
    reads or decodes files, so that reading ahead in threads pays. is_read_by_processes: its samples draw from
    generators of the process, so threads must not read ahead. argument: of `Trainer` that has the samples, in messages.

    Several threads may call `fetch`, `read` and `decode` at the same time.
    """

    tensors: Mapping[str, TensorSpec]
    class_names: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    reading: str = ""
    column_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    not_finite: dict[str, None] | None = None
    notices_not_finite: bool = False
    fingerprint: str
    is_decoded: bool = False
    is_read_by_processes: bool = False
    argument: str = "data"

    @property
    def is_image(self) -> bool:
        """Whether samples are images of a data set, with `image` and no tensors of other names."""
        image = self.tensors.get("image")
        has_only = set(self.tensors) <= {"image", "label", "condition"}
        return has_only and image is not None and len(image.shape) == 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (channels, height, width) of `image`. Raises `ConfigError` for other samples."""
        if "image" not in self.tensors:
            raise ConfigError(
                f"this needs images, but a sample of the data has {describe_tensors(self.tensors)}; use data of images"
            )
        channels, height, width = self.tensors["image"].shape
        return channels, height, width

    @property
    def has_pairs(self) -> bool:
        """Whether samples are pairs: `image`, and `condition` of the same size, from which it is generated."""
        return "condition" in self.tensors

    @property
    def condition_channels(self) -> int | None:
        """Channels of what images are generated from: `condition`, or `low` of super-resolution; None without it."""
        spec = self.tensors.get("condition") or self.tensors.get("low")
        return None if spec is None or not spec.is_image else spec.shape[0]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return the tensors of these samples by name, each (B, *shape), new ones: images are flipped in place.

        indices: int64 array (B,). places: positions of the rows in the endless stream of batches, int64 (B,); random
        crops and flips of a training split depend only on the seed and the position. None: no crops and flips.
        """

    def read(self, rows: Any) -> Sequence[bytes]:
        """Return what storage holds of these samples, undecoded; empty bytes: nothing to read.

        rows: int64 array (B,).
        """
        return [b""] * len(rows)

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Return the tensors of `fetch` from what `read` returned for these rows."""
        return self.fetch(rows, places, seed)

    def where(self, row: int) -> str:
        """Return the name of a sample in messages; a source of files returns that of the file."""
        return f"sample {row}"

    def stamp(self, row: int) -> str:
        """Return what identifies the content of a sample, whatever its folder, without reading it; empty: not known."""
        return ""

    def row_labels(self) -> NDArray[np.int64] | None:
        """Return the label of every sample, int64 (N,); None where that takes reading all of them."""
        return None

    def num_processes(self, wanted: int | None) -> int:
        """Return how many processes are to read ahead; 0: the training process reads. wanted: as configured."""
        return 0

    def start_process(self, number: int) -> None:
        """Prepare a process that reads ahead. number: from 0."""
        return

    def class_sizes(self) -> Sequence[int]:
        """Return the number of samples of each class; empty where that takes reading all of them."""
        labels_N = self.row_labels() if self.class_names else None
        return () if labels_N is None else np.bincount(labels_N, minlength=len(self.class_names)).tolist()


class EncodedSource(Source):
    """Base class of sources that read files or requests, and decode them.

    `read` may wait for storage, `decode` uses the CPU: stages run them in different threads.
    """

    is_decoded = True

    @abstractmethod
    def read(self, rows: Any) -> Sequence[bytes]: ...

    @abstractmethod
    def decode(
        self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0
    ) -> Mapping[str, Tensor]: ...

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        """Read and decode these samples."""
        return self.decode(self.read(indices), indices, places, seed)


class DerivedSource(EncodedSource):
    """Base class of sources whose samples are computed from those of another, `source`.

    Subclasses define `decode` and `fingerprint`, and what of `tensors` and `class_names` they change. `not_finite` is
    not copied: a run sets it on the source that it reads, whichever that is derived from.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tensors = source.tensors
        self.class_names = source.class_names
        self.notices = source.notices
        self.notices_not_finite = source.notices_not_finite
        self.reading = source.reading
        self.column_names = source.column_names
        self.is_decoded = source.is_decoded
        self.is_read_by_processes = source.is_read_by_processes
        self.argument = source.argument

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: Any) -> Sequence[bytes]:
        """Return what the other source reads."""
        return self.source.read(rows)

    def where(self, row: int) -> str:
        """Return the name that the other source has for a sample."""
        return self.source.where(row)

    def stamp(self, row: int) -> str:
        """Return the stamp that the other source has for a sample."""
        return self.source.stamp(row)

    def row_labels(self) -> NDArray[np.int64] | None:
        """Return the labels of the other source."""
        return self.source.row_labels() if "label" in self.tensors else None

    def num_processes(self, wanted: int | None) -> int:
        """Return how many processes may read the other source ahead; a new notice of it is one of this one."""
        num_before = len(self.source.notices)
        num = self.source.num_processes(wanted)
        self.notices += self.source.notices[num_before:]
        return num

    def start_process(self, number: int) -> None:
        """Prepare a process that reads the other source ahead."""
        self.source.start_process(number)


class StreamedSource(Source):
    """Base class of sources without random access: samples come in an order of their own.

    `fetch` returns samples of the begin, for trials; the length is 0.
    """

    @abstractmethod
    def samples(self, epoch: int) -> Iterator[Any]:
        """Return the samples of an epoch, equal for equal epochs."""

    @abstractmethod
    def stacked(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """Return samples as tensors by name, each (B, *shape)."""


def image_specs(
    shape: tuple[int, ...], has_labels: bool = False, condition: int | None = None, dtype: torch.dtype = torch.uint8
) -> dict[str, TensorSpec]:
    """Return the declaration of images of this shape. condition: its channels, of pairs. dtype: uint8 or uint16."""
    image = TensorSpec(shape, dtype)
    label = {"label": TensorSpec((), torch.int64)} if has_labels else {}
    pair = {} if condition is None else {"condition": TensorSpec((condition, *shape[1:]), dtype)}
    return {"image": image, **label, **pair}


def untrained_classes(class_names: Sequence[str], trained: Sequence[int], held_out: Sequence[int]) -> tuple[str, ...]:
    """Return a line that names the classes without training images, if there are some.

    trained, held_out: number of images of each class; empty: not known.
    """
    missing = [row for row, size in enumerate(trained) if not size]
    if not missing:
        return ()
    named = join_some([repr(class_names[row]) for row in missing])
    num_held_out = sum(held_out[row] for row in missing) if held_out else 0
    counted = f", with {num_held_out:,} of the held-out images" if num_held_out else ""
    return (f"classes without training images are left out{counted}: {named}; add training images",)


def describe_tensors(tensors: Mapping[str, TensorSpec]) -> str:
    """Return names, shapes and types in a line: `audio 1x512 float32, size 2 int64`."""
    return ", ".join(f"{name} {text}" for name, text in tensor_texts(tensors).items())


def tensor_texts(tensors: Mapping[str, TensorSpec]) -> dict[str, str]:
    """Return shape and type of each tensor of a sample, as text."""
    return {name: _text(spec) for name, spec in tensors.items()}


def _text(spec: TensorSpec) -> str:
    shape = "x".join(map(str, spec.shape)).replace("-1", "?") or "scalar"
    return f"{shape} {dtype_name(spec.dtype)}"


def dtype_name(dtype: torch.dtype | None) -> str:
    """Return the name of a type of numbers: `float32`."""
    return str(dtype).removeprefix("torch.")
