"""Batches of one cell, drawn by its number and the step."""

from paragan.core import rng
from paragan.core.types import Batch, Rows
from paragan.loading.loader import BatchStream


class CellStream(BatchStream):
    """Real images of one cell, and labels of three classes; `position` is the number of the next batch.

    bad: positions of batches with an infinite value. device: of the batches.
    """

    def __init__(self, cell, batch, shape, bad=()):
        super().__init__(source=None)
        self.cell, self.batch, self.shape, self.bad, self.device = cell, batch, shape, bad, "cpu"

    def fetch_next(self):
        rows = Rows(step=self.position, first=0, count=self.batch, total=self.batch)
        x = rng.uniform(self.cell, "x", rows, self.shape).double() * 2 - 1
        if self.position in self.bad:
            x[0, 0, 0, 0] = float("inf")
        return {"image": x, "label": rng.integers(self.cell, "y", rows, 3)}

    def to_batch(self, tensors, position, num_streams=1):
        tensors = {name: value.to(self.device) for name, value in tensors.items()}
        return Batch(Rows(step=position, first=0, count=num_streams * self.batch, total=self.batch), tensors)
