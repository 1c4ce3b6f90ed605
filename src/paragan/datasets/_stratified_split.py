"""A part held out of every class alike."""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.core import rng


def stratified_split(labels_N: Tensor, every: int, name: str) -> dict[str, Tensor]:
    """Row numbers of both parts in file order: held out is one in `every` of each class.

    Which one is a matter of the order that `name` shuffles to, and the same for every seed.
    """
    shuffled = torch.randperm(len(labels_N), generator=rng.generator(name, "split"))
    by_class = shuffled[labels_N[shuffled].argsort(stable=True)]
    held_out = torch.zeros(len(labels_N), dtype=torch.bool)
    held_out[by_class[::every]] = True
    return {"train": (~held_out).nonzero().flatten(), "held_out": held_out.nonzero().flatten()}
