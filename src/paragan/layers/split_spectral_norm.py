"""Spectral norm of a weight whose rows are split over ranks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.shard import layout_of, local_shard
from paragan.layers.all_reduce import AllReduceSum, ReduceGroup
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.spectral_norm import SpectralNorm


class SplitSpectralNorm(SpectralNorm):
    """`SpectralNorm` of the whole weight, for the shard of this rank; by `split_spectral_norm`.

    Returns the shard of W / sigma. u and v are whole and equal on all ranks. rows: of the shard, within
    the matrix. Of a whole weight it is `SpectralNorm`, without communication.
    """

    reduce_group: ReduceGroup
    rows: slice

    def forward(self, weight: Tensor) -> Tensor:
        """Collective: every rank must call this if the weight is split."""
        shard = local_shard(weight)
        if shard is weight:
            return super().forward(weight)
        with autocast_off(shard):
            wide = at_least_float32(shard)
            matrix = wide.flatten(1)
            if self.take_update():
                self._iterate_split(matrix)
            # Copies, as in `SpectralNorm`.
            u = self.u[self.rows].to(matrix.dtype, copy=True)
            v = self.v.to(matrix.dtype, copy=True)
            sigma = AllReduceSum.apply(torch.dot(u, torch.mv(matrix, v)), self.reduce_group)
            return (wide / sigma).to(shard.dtype)

    @torch.no_grad()
    def _iterate_split(self, matrix: Tensor) -> None:
        """Run the power iteration of the whole matrix: products of shards add up to v, and are parts of u."""
        u = self.u[self.rows].to(matrix.dtype)
        self.v.copy_(F.normalize(self.reduce_group.all_reduce_(torch.mv(matrix.T, u)), dim=0))
        whole = matrix.new_zeros(len(self.u))
        whole[self.rows] = torch.mv(matrix, self.v.to(matrix.dtype))
        self.u.copy_(F.normalize(self.reduce_group.all_reduce_(whole), dim=0))


def split_spectral_norm(norm: SpectralNorm, weight: Tensor, ranks: ReduceGroup) -> None:
    """Make a norm that of a split weight, in place; its vectors stay. ranks: that have shards."""
    box = layout_of(weight)
    norm.__class__ = SplitSpectralNorm
    assert isinstance(norm, SplitSpectralNorm)
    norm.reduce_group = ranks
    norm.rows = slice(box.offset[0], box.offset[0] + box.length[0])
