"""What a stack of cells is fed: every cell's own, in its place."""

import pytest
import torch

from paragan.datasets import synthetic
from paragan.extensions.grid.executors.inputs import CellStreams
from paragan.loading.loader import Loader


def loader(seed: int) -> Loader:
    shapes = synthetic.source(synthetic.Options("shapes", size=8, num_images=40), "train")
    return Loader(shapes, 4, seed, torch.device("cpu"))


@pytest.mark.parametrize("plain", [(), (1,), (0, 1, 2)])
def test_cell_streams_of_any_kind_give_their_batches(plain):
    """plain: those that are other iterators than loaders."""
    streams = [iter([next(loader(n))]) if n in plain else loader(n) for n in range(3)]
    batch = next(CellStreams(streams))
    expected = [next(loader(n)) for n in range(3)]
    assert torch.equal(batch.image, torch.cat([one.image for one in expected]))
    assert torch.equal(batch.label, torch.cat([one.label for one in expected]))
    assert batch.rows.count == 12 and batch.rows.total == 4
