"""Orders of endless streams: epochs are permutations without a pattern, and balanced batches have equal classes."""

from itertools import permutations

import numpy as np
import pytest
import torch

from paragan.datasets.base.in_memory import InMemorySource
from paragan.loading.loader import Loader
from paragan.loading.order import ClassOrder, Order

LABELS = np.repeat([0, 1, 2, 3], [90, 7, 2, 1])


def epochs(n, seed=0, count=3):
    return Order(n, seed).at(np.arange(count * n)).reshape(count, n)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 17, 1437, 60_000])
def test_each_epoch_visits_every_row_once(n):
    assert np.array_equal(np.sort(epochs(n), axis=1), np.tile(np.arange(n), (3, 1)))


def test_epochs_and_seeds_differ():
    orders = [*epochs(1437), *epochs(1437, seed=1)]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert np.mean(a == b) < 0.01


@pytest.mark.parametrize("make", [Order, ClassOrder])
def test_a_position_needs_no_other_and_seeds_differ(make):
    order, other = (make(1437 if make is Order else LABELS, seed) for seed in (5, 6))
    positions = np.array([3, 2_000, 10**12, 0, 1_500, 3])
    alone = [order.at(np.array([p]))[0] for p in positions]
    assert order.at(positions).tolist() == alone
    assert order.at(positions).dtype == np.int64
    assert order.at(np.arange(100)).tolist() != other.at(np.arange(100)).tolist()


def test_the_same_on_every_machine():
    assert Order(1437, seed=0).at(np.array([0, 1, 2, 1436, 1437])).tolist() == [233, 1394, 770, 388, 1307]


def test_all_orders_of_few_rows_are_equally_likely():
    num_epochs = 4_000
    seen = epochs(5, seed=2, count=num_epochs)
    counts = np.array([np.sum((seen == order).all(1)) for order in permutations(range(5))])
    expected = num_epochs / 120
    chi_square = np.sum((counts - expected) ** 2 / expected)  # 119 degrees of freedom: 119 +- 15.4
    assert chi_square < 119 + 5 * 15.4


def test_every_row_comes_at_every_place():
    """Which tenth of the data set a place's row is from, over many epochs."""
    n, num_epochs = 1000, 200
    tenths = epochs(n, seed=3, count=num_epochs) // 100
    counts = np.stack([np.bincount(column, minlength=10) for column in tenths.T])
    chi_square = np.sum((counts - num_epochs / 10) ** 2 / (num_epochs / 10))  # about 9 x 1000 degrees of freedom
    assert abs(chi_square - 9000) < 5 * np.sqrt(2 * 9000)


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
