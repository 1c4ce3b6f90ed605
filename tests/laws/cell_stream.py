"""Batches of one cell, drawn by its number and the step."""

from paragan.core import rng
from paragan.core.types import Batch, Rows


class CellStream:
    """Real images of one cell, and labels of three classes; `position` is the number of the next batch."""

    def __init__(self, cell, batch, shape):
        self.cell, self.position = cell, 0
        self.batch, self.shape = batch, shape

    def __iter__(self):
        return self

    def __next__(self):
        rows = Rows(step=self.position, first=0, count=self.batch, total=self.batch)
        self.position += 1
        x = rng.uniform(self.cell, "x", rows, self.shape).double() * 2 - 1
        return Batch(rows, {"image": x, "label": rng.integers(self.cell, "y", rows, 3)})
