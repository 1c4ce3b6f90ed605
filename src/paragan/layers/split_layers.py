"""Layers whose weights are split over ranks, each of which has rows of the batch.

A split layer is called with this rank's rows and returns the output of these rows, so that the
network around it does not change. Its shard of the weight is multiplied with the rows of all ranks,
so the gradient of the shard is that of all ranks' losses. Weights are `DTensor` shards, cut as
`torch.chunk` cuts; the products and exchanges are of this project, since those of DTensor have no
second derivatives of embeddings and no rows per rank (docs/internals/design/025-tensor.md).

`split.py` makes a layer an instance of (split class, its own class), in place, so that methods here use
those of its own class, and sets `ranks` and `widths`, of which none is 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.layout import layout_of, local_shard
from paragan.layers.all_reduce import AllReduceSum, ReduceGroup
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.row_exchange import SplitRanks
from paragan.layers.spectral_norm import SpectralNorm


class SplitLayer(nn.Module):
    """Base of split layers. Collective: every rank must call them, also without rows.

    ranks: that share the weights. widths: rows of the weight (axis 0), by rank.
    """

    ranks: SplitRanks
    widths: tuple[int, ...]

    def shard(self, name: str) -> Tensor:
        """Return this rank's shard of a parameter, parametrised or not, with its graph."""
        value: Tensor = getattr(self, name)
        return local_shard(value)


class SplitTable(SplitLayer):
    """Tables of one row per class, split by rows."""

    def rows_of(self, labels_B: Tensor, *names: str) -> Tensor:
        """Return the rows of these tables, next to one another on the last axis."""
        rows = self.ranks.rows(len(labels_B))
        labels = rows.gather(labels_B)
        return rows.scatter_sum(torch.cat([self._local_rows(labels, self.shard(name)) for name in names], -1))

    def _local_rows(self, labels: Tensor, shard: Tensor) -> Tensor:
        """Return the rows that this rank has, and zeros for the others."""
        index = labels - sum(self.widths[: self.ranks.world.rank])
        is_local = (index >= 0) & (index < len(shard))
        is_valid = (labels >= 0) & (labels < sum(self.widths))
        # an invalid label fails in the look-up, on every rank
        index = index.where(is_local, 0).where(is_valid, len(shard))
        return F.embedding(index, shard).where(is_local.unsqueeze(-1), 0.0)


class EmbeddingRows(SplitTable):
    """`nn.Embedding` split by rows."""

    def forward(self, labels_B: Tensor) -> Tensor:
        return self.rows_of(labels_B, "weight")


class ConditionalNormRows(SplitTable):
    """`ConditionalBatchNorm` whose tables are split by rows; statistics do not change."""

    def look_up(self, y_B: Tensor) -> tuple[Tensor, Tensor]:
        gain, bias = self.rows_of(y_B, "gain", "bias").chunk(2, 1)
        return gain, bias


class SplitByOutputs(SplitLayer):
    """`nn.Linear` or `nn.Conv2d` split by outputs: one exchange gathers the input, one returns the outputs."""

    bias: Tensor | None

    def forward(self, x_B: Tensor) -> Tensor:
        if isinstance(self, nn.Linear) and x_B.dim() != 2:
            raise DataError(
                f"a split nn.Linear takes inputs of shape (B, features), not {tuple(x_B.shape)}; "
                "flatten the other axes into B"
            )
        rows = self.ranks.rows(len(x_B))
        # this shard with the rows of all ranks: its gradient is whole, and needs no reduction
        return rows.scatter_columns(self._product(rows.gather(x_B)), self.widths)

    def _product(self, x: Tensor) -> Tensor:
        """Return this rank's outputs for the rows of all ranks."""
        bias = None if self.bias is None else self.shard("bias")
        if isinstance(self, nn.Conv2d):
            return self._conv_forward(x, self.shard("weight"), bias)
        return F.linear(x, self.shard("weight"), bias)


class SplitSpectralNorm(SpectralNorm):
    """`SpectralNorm` of the whole weight, for the shard of this rank; by `split_spectral_norm`.

    Returns the shard of W / sigma. u and v are whole and equal on all ranks. rows: of the shard, within
    the matrix. Of a whole weight it is `SpectralNorm`, without communication. Weights are real, and outputs their
    axis 0 (`dim` is 0): `split.py` refuses others.
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
            # Copies for a graph, as in `SpectralNorm`; also after an iteration, which has written to u and v alone.
            has_graph = matrix.requires_grad and torch.is_grad_enabled()
            u = self.u[self.rows].to(matrix.dtype, copy=has_graph)
            v = self.v.to(matrix.dtype, copy=has_graph)
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
    shard = layout_of(weight)
    norm.__class__ = SplitSpectralNorm
    assert isinstance(norm, SplitSpectralNorm)
    norm.reduce_group = ranks
    norm.rows = slice(shard.offset[0], shard.offset[0] + shard.length[0])
