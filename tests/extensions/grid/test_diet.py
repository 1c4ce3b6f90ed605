"""What a cell eats: a share of the rows, keyed by its number."""

import numpy as np
import pytest
import torch

from paragan.datasets.base.in_memory import InMemorySource
from paragan.extensions.grid.data_shares import random_rows
from paragan.loading import subset
from paragan.loading.loader import Loader
from paragan.loading.subset import SubsetSource

NUM = 103


def source(labels=None):
    """Every image has the number of its row as its grey level."""
    images = torch.arange(NUM, dtype=torch.uint8).view(-1, 1, 1, 1).expand(NUM, 1, 2, 2).contiguous()
    return InMemorySource(images, labels, () if labels is None else ("a", "b", "c"), "rows")


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.001])
def test_a_share_is_so_many_different_rows_and_one_at_least(share):
    rows = random_rows(NUM, share, 0, 4)
    assert len(set(rows.tolist())) == len(rows) == max(1, int(NUM * share))
    assert rows.tolist() == sorted(rows) and rows.min() >= 0 and rows.max() < NUM


def test_a_share_is_keyed_by_seed_and_cell():
    first = random_rows(NUM, 0.5, 0, 0)
    assert np.array_equal(first, random_rows(NUM, 0.5, 0, 0))
    for other in (random_rows(NUM, 0.5, 0, 1), random_rows(NUM, 0.5, 1, 0)):
        common = len(set(first.tolist()) & set(other.tolist()))
        assert 10 < common < 40  # a quarter of all, by chance; not the same, and not apart


def test_a_diet_is_a_source_of_these_rows():
    rows = np.array([3, 50, 99])
    part = SubsetSource(source(torch.arange(NUM) % 3), rows)
    x, y = part.fetch(np.array([2, 0, 2])).values()
    assert (x[:, 0, 0, 0].tolist(), y.tolist()) == ([99, 3, 99], [0, 0, 0])
    assert (len(part), part.shape, part.class_names) == (3, (1, 2, 2), ("a", "b", "c"))
    assert part.fingerprint == SubsetSource(source(), rows).fingerprint != SubsetSource(source(), rows[:2]).fingerprint
    loader = Loader(part, 4, 0, torch.device("cpu"))
    seen = {round(float((v + 1) * 127.5)) for _ in range(5) for v in next(loader).image[:, 0, 0, 0]}
    assert seen == {3, 50, 99}


def test_labels_are_read_block_by_block(monkeypatch):
    monkeypatch.setattr(subset, "_BLOCK_ROWS", 10)
    y = torch.arange(NUM) * 7 % 3
    assert subset.read_labels(source(y)).tolist() == y.tolist()
