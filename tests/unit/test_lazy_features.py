"""`coevolution.mixture.LazyFeatures`: images are made in blocks, each once, and only those that some mixture has."""

from __future__ import annotations

import pytest
import torch

from paragan.coevolution.mixture import LazyFeatures, mixture_features
from paragan.core.metric import SampleFeatures

NUM = 250


def everything(offset=0):
    values = torch.arange(float(NUM))[:, None] + offset
    return SampleFeatures(values, values * 2)


class Counted:
    def __init__(self, offset=0):
        self.whole, self.made = everything(offset), []

    def __call__(self, first, end):
        self.made.append((first, end))
        return self.whole.rows(first, end)


@pytest.mark.parametrize(
    ("first", "end", "made"),
    [
        (0, NUM, [(0, 100), (100, 200), (200, 250)]),
        (0, 100, [(0, 100)]),
        (99, 101, [(0, 100), (100, 200)]),
        (240, 250, [(200, 250)]),
        (120, 130, [(100, 200)]),
        (70, 70, [(0, 100)]),
        (NUM, NUM, [(200, 250)]),
    ],
)
def test_lazy_features_rows_equal_those_of_all_images(first, end, made):
    counted = Counted()
    pool = LazyFeatures(counted, NUM)
    assert len(pool) == NUM
    for _ in range(2):  # the second time nothing is made
        found, expected = pool.rows(first, end), counted.whole.rows(first, end)
        assert torch.equal(found.features_BF, expected.features_BF)
        assert torch.equal(found.logits_BK, expected.logits_BK)
    assert counted.made == made


def test_lazy_features_of_a_mixture_compute_only_used_blocks():
    counted = [Counted(1000 * n) for n in range(3)]
    pools, weights = [LazyFeatures(one, NUM) for one in counted], (0.4, 0.6, 0.0)
    found = mixture_features(pools, weights)
    expected = mixture_features([one.whole for one in counted], weights)
    assert torch.equal(found.features_BF, expected.features_BF) and len(found) == NUM
    assert counted[0].made == [(0, 100)]
    assert counted[1].made == [(100, 200), (200, 250)]
