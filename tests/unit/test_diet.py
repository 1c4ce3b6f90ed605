"""What a cell eats: a share of the rows, keyed by its number; pieces that do not overlap cover the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.datasets._in_memory import InMemorySource
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
    rows = subset.random_rows(NUM, share, 0, 4)
    assert len(set(rows.tolist())) == len(rows) == max(1, int(NUM * share))
    assert rows.tolist() == sorted(rows) and rows.min() >= 0 and rows.max() < NUM


def test_a_share_is_keyed_by_seed_and_cell():
    first = subset.random_rows(NUM, 0.5, 0, 0)
    assert np.array_equal(first, subset.random_rows(NUM, 0.5, 0, 0))
    for other in (subset.random_rows(NUM, 0.5, 0, 1), subset.random_rows(NUM, 0.5, 1, 0)):
        common = len(set(first.tolist()) & set(other.tolist()))
        assert 10 < common < 40  # a quarter of all, by chance; not the same, and not apart


@pytest.mark.parametrize("shares", [(0.25,) * 4, (0.5, 0.1, 0.1, 0.3), (1 / 3,) * 3, (1.0,)])
def test_disjoint_subsets_have_the_size_of_their_shares(shares):
    pieces = [subset.disjoint_rows(NUM, shares, 0, cell) for cell in range(len(shares))]
    assert [len(piece) for piece in pieces] == [int(NUM * share) for share in shares]
    everything = np.concatenate(pieces)
    assert len(set(everything.tolist())) == len(everything) >= NUM - len(shares)  # all but what rounding leaves
    assert not np.array_equal(pieces[0], np.arange(len(pieces[0]))) or len(shares) == 1  # drawn, not cut off the front


def test_disjoint_subset_does_not_depend_on_later_cells():
    assert np.array_equal(
        subset.disjoint_rows(NUM, (0.2, 0.3, 0.5), 0, 1), subset.disjoint_rows(NUM, (0.2, 0.3, 0.1), 0, 1)
    )
    assert not np.array_equal(subset.disjoint_rows(NUM, (0.2, 0.3), 0, 1), subset.disjoint_rows(NUM, (0.3, 0.3), 0, 1))


def test_more_disjoint_subsets_than_images_raise():
    with pytest.raises(
        ConfigError, match=r"grid.overlap=false needs at least one image per cell: 5 images for 9 cells"
    ):
        subset.disjoint_rows(5, (0.1,) * 9, 0, 8)


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
