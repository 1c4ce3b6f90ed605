"""Stratified split of a data set into a training and a held-out part."""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.core import rng


def stratified_split(labels_N: Tensor, every: int, name: str) -> dict[str, Tensor]:
    """Return the rows of both splits, in file order: one in `every` rows of each class is held out.

    The order in which rows are picked is a permutation seeded by `name` alone, so the split is the
    same for every seed of a run.
    """
    shuffled = torch.randperm(len(labels_N), generator=rng.generator(name, "split"))
    by_class = shuffled[labels_N[shuffled].argsort(stable=True)]
    is_held_out = torch.zeros(len(labels_N), dtype=torch.bool)
    is_held_out[by_class[::every]] = True
    return {
        "train": (~is_held_out).nonzero().flatten(),
        "held_out": is_held_out.nonzero().flatten(),
    }
