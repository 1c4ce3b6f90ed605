"""Batches of one cell, drawn by its number and the step."""

from dataclasses import replace

from paragan.core import rng
from paragan.core.types import Batch, Rows
from paragan.loading.loader import BatchStream


class CellStream(BatchStream):
    """Real images of one cell, and labels of three classes; `position` is the number of the next batch.

    bad: positions of batches with an infinite value. device: of the batches.
    """

    def __init__(self, cell, batch, shape, bad=()):
        super().__init__(source=None, rows=Rows(step=0, first=0, count=batch, total=batch))
        self.cell, self.shape, self.bad = cell, shape, bad

    def fetch_next(self):
        rows = replace(self.rows, step=self.position)
        x = rng.uniform(self.cell, "x", rows, self.shape).double() * 2 - 1
        if self.position in self.bad:
            x[0, 0, 0, 0] = float("inf")
        return {"image": x, "label": rng.integers(self.cell, "y", rows, 3)}

    def to_batch(self, tensors, num_streams=1):
        tensors = {name: value.to(self.device) for name, value in tensors.items()}
        return Batch(replace(self.rows, step=self.position, count=num_streams * self.rows.count), tensors)
