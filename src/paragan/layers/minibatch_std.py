"""Minibatch standard deviation as one more channel (Karras et al. 2018, section 3).

A discriminator can detect by it that all images of a batch are similar.
"""

import torch
from torch import Tensor

from paragan.layers.all_reduce import SharedBatchRanks, gather_batch
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.update_once import UpdateOnce

_EPS = 1e-8


class MinibatchStd(UpdateOnce):
    """Layer that appends the standard deviation of each image's group: (B, C + 1, H, W).

    It is averaged over C, H, W. group: consecutive images (the authors' are evenly spaced in the batch);
    the last group may have fewer, and one image gives nearly 0. Training on a shared batch uses all of it
    (`layers/cross_rank.convert`).
    """

    mixes_samples = True
    shared_ranks: SharedBatchRanks | None = None

    def __init__(self, group: int = 4) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        with autocast_off(x):
            wide = at_least_float32(x)
            if self.shared_ranks is not None and self.training:
                rows = self.shared_ranks.rows(len(x))
                group = self.shared_ranks.reduce_group
                spread_B = self._spread(gather_batch(wide, rows, group))[rows.window]
            else:
                spread_B = self._spread(wide)
        spread_B111 = spread_B.to(x.dtype)[:, None, None, None]
        return torch.cat([x, spread_B111.expand(-1, 1, *x.shape[2:])], 1)

    def _spread(self, x: Tensor) -> Tensor:
        """Return the mean standard deviation of each image's group, (B,)."""
        in_groups = len(x) // self.group * self.group
        pieces = [_group_std(x[:in_groups], self.group)] if in_groups else []
        if len(x) > in_groups:
            pieces.append(_group_std(x[in_groups:], len(x) - in_groups))
        return torch.cat(pieces) if len(pieces) != 1 else pieces[0]


def _group_std(x: Tensor, group: int) -> Tensor:
    var = x.unflatten(0, (-1, group)).var(1, unbiased=False)
    return var.add(_EPS).sqrt().flatten(1).mean(1).repeat_interleave(group)
