"""Distances by products rule out, and those that decide are computed from differences."""

import pytest
import torch

from paragan.metrics import _neighbours

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 16, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(40, 16, generator=GENERATOR, dtype=torch.float64)
SETS = {
    "drawn": (X, Y),
    "copies": (torch.cat([Y[:20], X[:40]]), torch.cat([Y, Y[:10]])),
    "far from the origin": (X + 1e7, Y + 1e7),
    "collapsed": (torch.ones(60, 16, dtype=torch.float64) / 3, torch.cat([Y, torch.ones(20, 16).double() / 3])),
    "not finite": (torch.cat([X, X[:1] * torch.nan]), torch.cat([Y, Y[:1] * torch.inf])),
}


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr(_neighbours, "_DISTANCES_AT_ONCE", 7 * 40)


def plain(a, b):
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def same(found, expected):
    return torch.equal(found.nan_to_num(-1.0), expected.nan_to_num(-1.0))


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
def test_nearest_and_radii_equal_those_of_all_differences(sets):
    a, b = sets
    assert same(_neighbours.nearest(a, b), plain(a, b).kthvalue(1, dim=1).values)
    assert same(_neighbours.radii(a, 3), plain(a, a).kthvalue(4, dim=1).values)


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
def test_within_equals_a_comparison_of_all_differences(sets):
    a, b = sets
    to_others = plain(b, a).kthvalue(2, dim=1).values  # radii that end at a row of the other set: ties
    assert to_others.isfinite().any()
    found = torch.cat(list(_neighbours.within(a, b, to_others)))
    assert torch.equal(found, plain(a, b) <= to_others)


def test_copy_has_the_distance_0():
    assert not _neighbours.nearest(X[:5] * 1e3, X * 1e3).any()


def test_few_differences_are_computed(monkeypatch):
    numbers = []
    by_differences = _neighbours._by_differences

    def counted(a, b):
        distances = by_differences(a, b)
        numbers.append(distances.numel())
        return distances

    monkeypatch.setattr(_neighbours, "_by_differences", counted)
    _neighbours.radii(X, 3)
    assert sum(numbers) == 4 * len(X)
