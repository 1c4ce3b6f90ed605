"""Labels of generated samples: by the sizes of the classes, equal on all ranks, and unchanged where sizes are equal."""

from __future__ import annotations

import pytest
import torch

from paragan.core import rng
from paragan.core.types import Rows
from paragan.game import latents
from paragan.game.prior import Prior


def rows(count=64, step=0):
    return Rows(step=step, first=0, count=count, total=count)


def prior(*sizes, num_classes=None):
    return Prior(seed=3, latent=2, num_classes=num_classes or len(sizes), class_sizes=sizes)


@pytest.mark.parametrize("num_classes", [1, 2, 10, 3000])
@pytest.mark.parametrize("size", [0, 1, 7, 4000])
def test_labels_of_equal_classes_are_uniform_integers(num_classes, size):
    drawn = prior(*[size] * num_classes if size else [], num_classes=num_classes)
    for step in range(3):
        expected = rng.integers(3, "g/y", rows(step=step), num_classes)
        assert torch.equal(drawn.draw("g", rows(step=step))[1], expected)
    assert drawn.protocol == {"labels": "uniform"}


@pytest.mark.parametrize("sizes", [(900, 100), (5, 0, 95), (1, 2, 3, 4), (10**9, 10**9 - 1, 1)])
def test_labels_come_by_the_sizes_of_the_classes(sizes):
    count = 40_000
    y = prior(*sizes).draw("score", rows(count))[1]
    shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    counts = y.bincount(minlength=len(sizes)).double()
    assert len(counts) == len(sizes)
    assert ((counts - count * shares).abs() <= 5 * (count * shares * (1 - shares)).sqrt() + 1e-9).all()
    assert not counts[shares == 0].any()


def test_ranks_and_micro_batches_draw_the_labels_of_the_global_batch():
    drawn = prior(7, 1, 2)
    whole = drawn.draw("d", rows(12, step=5))[1]
    shares = rows(12, step=5).shares(5)
    assert torch.equal(torch.cat([drawn.draw("d", share)[1] for share in shares]), whole)
    for part in rows(12, step=5).parts(4):
        assert torch.equal(drawn.draw("d", part)[1], whole[part.window])


def test_labels_of_more_samples_begin_with_those_of_fewer():
    drawn = prior(7, 1, 2)
    assert torch.equal(latents.draw(drawn, 150)[1][:70], latents.draw(drawn, 70)[1])
