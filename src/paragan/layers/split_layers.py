"""Layers whose weights are split over ranks, each of which has rows of the batch.

A split layer is called with this rank's rows and returns the output of these rows, so that the
network around it does not change. Its shard of the weight is multiplied with the rows of all ranks,
so the gradient of the shard is that of all ranks' losses. Weights are `DTensor` shards, cut as
`torch.chunk` cuts; the products and exchanges are of this project, since those of DTensor have no
second derivatives of embeddings and no rows per rank (docs/design/025-tensor.md).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.shard import local_shard
from paragan.layers.row_exchange import GroupRows, SplitRanks


class SplitLayer(nn.Module):
    """Base of split layers. Collective: every rank must call them, also without rows.

    ranks: that share the weights. widths: of the split axis, by rank.
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
        found = [self._rows_here(labels, self.shard(name)) for name in names]
        return rows.scatter_sum(found[0] if len(found) == 1 else torch.cat(found, -1))

    def _rows_here(self, labels: Tensor, shard: Tensor) -> Tensor:
        """Return the rows that this rank has, and zeros for the others."""
        index = labels - sum(self.widths[: self.ranks.world.rank])
        here = (index >= 0) & (index < len(shard))
        is_valid = (labels >= 0) & (labels < sum(self.widths))
        # an invalid label fails in the look-up, on every rank
        index = index.where(here, 0).where(is_valid, len(shard))
        return F.embedding(index, shard).where(here.unsqueeze(-1), 0.0)


class EmbeddingRows(SplitTable):
    """`nn.Embedding` split by rows."""

    def forward(self, labels_B: Tensor) -> Tensor:
        return self.rows_of(labels_B, "weight")


class ConditionalNormRows(SplitTable):
    """`ConditionalBatchNorm` whose tables are split by rows; statistics do not change."""

    def look_up(self, y_B: Tensor) -> tuple[Tensor, Tensor]:
        gain, bias = self.rows_of(y_B, "gain", "bias").chunk(2, 1)
        return gain, bias


class SplitProduct(SplitLayer):
    """`nn.Linear` or `nn.Conv2d` with a part of the weight."""

    bias: Tensor | None

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the product with this rank's shard of the weight."""
        if isinstance(self, nn.Conv2d):
            return self._conv_forward(x, self.shard("weight"), bias)
        return F.linear(x, self.shard("weight"), bias)


class SplitByOutputs(SplitProduct):
    """Layer whose outputs are split: one exchange gathers the input, one returns the outputs."""

    def forward(self, x_B: Tensor) -> Tensor:
        rows = _rows(self, x_B)
        return rows.scatter_columns(self.outputs_here(x_B, rows), self.widths)

    def outputs_here(self, x_B: Tensor, rows: GroupRows) -> Tensor:
        """Return this rank's outputs for the rows of all ranks."""
        return self.product(rows.gather(x_B), None if self.bias is None else self.shard("bias"))


class SplitByInputs(SplitProduct):
    """Layer whose inputs are split: one exchange gathers its inputs here, one sums the outputs."""

    def forward(self, x_B: Tensor) -> Tensor:
        rows = _rows(self, x_B)
        return self.outputs_from(rows.gather_columns(x_B, self.widths), rows)

    def outputs_from(self, x: Tensor, rows: GroupRows) -> Tensor:
        """Return this rank's rows of the output, from this rank's inputs of all rows."""
        y_B = rows.scatter_sum(self.product(x))
        return y_B if self.bias is None else y_B + self.bias.view(-1, *(1,) * (y_B.dim() - 2))


class SplitPair(SplitLayer):
    """`nn.Sequential` of a layer split by outputs, elementwise layers, and one split by inputs.

    One exchange gathers the input, one sums the outputs; between them a rank has all rows of its
    channels.
    """

    def forward(self, x_B: Tensor) -> Tensor:
        first, *between, last = self.children()
        assert isinstance(first, SplitByOutputs)
        assert isinstance(last, SplitByInputs)
        rows = _rows(first, x_B)
        h = first.outputs_here(x_B, rows)
        for layer in between:
            h = layer(h)
        return last.outputs_from(h, rows)


def _rows(layer: SplitProduct, x_B: Tensor) -> GroupRows:
    if isinstance(layer, nn.Linear) and x_B.dim() != 2:
        problem = f"a split nn.Linear takes inputs of shape (B, features), not {tuple(x_B.shape)}"
        raise DataError(f"{problem}; flatten the other axes into B")
    return layer.ranks.rows(len(x_B))
