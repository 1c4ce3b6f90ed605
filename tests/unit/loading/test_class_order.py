"""Batches of `data.balance=classes`: equally many samples of each class, by seed and position alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paragan.datasets.base.in_memory import InMemorySource
from paragan.loading.loader import Loader
from paragan.loading.order import ClassOrder

LABELS = np.repeat([0, 1, 2, 3], [90, 7, 2, 1])


def classes_at(positions, seed=0, labels=LABELS):
    return labels[ClassOrder(labels, seed).at(positions)]


def test_each_class_comes_once_in_as_many_rows_as_there_are_classes():
    turns = classes_at(np.arange(4000)).reshape(-1, 4)
    assert np.array_equal(np.sort(turns, axis=1), np.tile([0, 1, 2, 3], (1000, 1)))
    counts = np.stack([np.bincount(column, minlength=4) for column in turns.T])  # at every place equally often
    assert np.abs(counts - 250).max() < 5 * 250**0.5


@pytest.mark.parametrize(("label", "size"), [(0, 90), (1, 7), (2, 2), (3, 1)])
def test_rows_of_a_class_come_in_permutations(label, size):
    rows = ClassOrder(LABELS, 1).at(np.arange(4 * 3 * size))
    epochs = rows[LABELS[rows] == label].reshape(3, size)
    assert np.array_equal(np.sort(epochs, axis=1), np.tile(np.flatnonzero(label == LABELS), (3, 1)))
    assert size < 7 or not np.array_equal(epochs[0], epochs[1])


def test_a_position_needs_no_other_and_seeds_differ():
    order = ClassOrder(LABELS, seed=5)
    positions = np.array([3, 2_000, 10**9, 0, 1_500, 3])
    assert order.at(positions).tolist() == [order.at(np.array([position]))[0] for position in positions]
    assert order.at(np.arange(100)).tolist() != ClassOrder(LABELS, seed=6).at(np.arange(100)).tolist()


def test_labels_in_any_order_of_rows_and_with_gaps_are_balanced():
    labels = np.random.default_rng(0).permutation(np.repeat([2, 5, 40], [50, 3, 1]))
    assert np.unique(classes_at(np.arange(300), labels=labels), return_counts=True)[1].tolist() == [100] * 3


def loader(share=None, position=0, batch=8):
    images = torch.arange(100, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    source = InMemorySource(images, torch.from_numpy(LABELS), tuple("abcd"))
    made = Loader(source, batch, 0, torch.device("cpu"), share=share, balanced_by=LABELS)
    made.position = position
    return made


def test_batches_on_ranks_and_after_a_resume_are_those_of_one_process():
    whole = loader()
    batches = [next(whole) for _ in range(30)]
    assert all(batch.label.bincount().tolist() == [2, 2, 2, 2] for batch in batches)
    for share in ((0, 3), (3, 5)):
        rank = loader(share, position=17)
        for batch in batches[17:]:
            local = next(rank)
            assert torch.equal(local.image, batch.image[share[0] : sum(share)])
