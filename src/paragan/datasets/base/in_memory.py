"""Source of a split that is held in memory, and a split of one set into two."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core import rng
from paragan.core.source import Source, image_specs
from paragan.core.types import present_tensors


class InMemorySource(Source):
    """A `Source` of uint8 or uint16 images (N, C, H, W) and, for a labelled data set, int64 labels (N,)."""

    def __init__(
        self,
        images_NCHW: Tensor,
        labels_N: Tensor | None = None,
        class_names: tuple[str, ...] = (),
        fingerprint: str = "",
    ) -> None:
        self.images_NCHW = images_NCHW
        self.labels_N = labels_N
        self.class_names = class_names
        self._row_labels = None if labels_N is None else labels_N.numpy()  # here: a plan reads no tensors
        self.fingerprint = fingerprint
        channels, height, width = images_NCHW.shape[1:]
        self.tensors = image_specs((channels, height, width), labels_N is not None, dtype=images_NCHW.dtype)

    def __len__(self) -> int:
        return len(self.images_NCHW)

    def row_labels(self) -> NDArray[np.int64] | None:
        return self._row_labels

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return copies of rows. indices: int64 array (B,) in [0, N)."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        labels_B = None if self.labels_N is None else self.labels_N.index_select(0, rows)
        return present_tensors(image=self.images_NCHW.index_select(0, rows), label=labels_B)


def compute_fingerprint(*parts: object) -> str:
    """Hash what identifies a data set to 16 hex digits; files by size and modification time."""
    words = (f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" if isinstance(p, Path) else str(p) for p in parts)
    return hashlib.blake2b("\x1f".join(words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def content_fingerprint(source: Source) -> str:
    """Return the fingerprint of a source and of four of its samples.

    Of these the mean magnitude of each tensor counts, to three digits, which do not depend on the
    machine. Samples that differ from call to call do not count.
    """
    rows = np.linspace(0, max(0, len(source) - 1), 4).astype(np.int64)
    magnitudes = _magnitudes(source.fetch(rows))
    is_repeatable = _magnitudes(source.fetch(rows)) == magnitudes
    return compute_fingerprint(source.fingerprint, magnitudes) if is_repeatable else source.fingerprint


def _magnitudes(tensors: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Return the mean magnitude of each row of each tensor, as text."""
    sizes = {name: (tensor.abs() if tensor.is_complex() else tensor.double().abs()) for name, tensor in tensors.items()}
    means = {name: size.reshape(len(size), -1).mean(1).tolist() for name, size in sizes.items()}
    return {name: [f"{mean:.3g}" for mean in of_rows] for name, of_rows in means.items()}


def stratified_split(labels_N: Tensor, share: float, name: str) -> dict[str, Tensor]:
    """Return the rows of both splits, in file order: a share of each class is held out, of all at least one row.

    The only row of a class is trained on. The order in which rows are picked is a permutation seeded by
    `name` alone, so the split is the same for every seed of a run.
    """
    shuffled = torch.randperm(len(labels_N), generator=rng.generator(name, "split"))
    by_class = shuffled[labels_N[shuffled].argsort(stable=True)]
    # row n is picked where share * n passes a whole number: at equal distances, so evenly in all classes, in order here
    num_picked = (torch.arange(len(labels_N) + 1, dtype=torch.float64) * share).ceil()
    picked = by_class[num_picked.diff() > 0]
    is_single = labels_N.bincount()[labels_N] == 1
    is_held_out = torch.zeros(len(labels_N), dtype=torch.bool)
    is_held_out[picked[~is_single[picked]]] = True
    if not is_held_out.any():  # few rows: one, of a class of several if there is one
        is_held_out[by_class[is_single[by_class].byte().argmin()]] = True
    return {"train": (~is_held_out).nonzero().flatten(), "held_out": is_held_out.nonzero().flatten()}
