"""The order of an endless stream: each epoch a permutation, all of them different, none of them patterned."""

from itertools import permutations

import numpy as np
import pytest

from paragan.loading.order import Order


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


def test_a_position_needs_no_other():
    order = Order(1437, seed=5)
    positions = np.array([3, 2_000, 10**12, 0, 1_500, 3])
    alone = [order.at(np.array([p]))[0] for p in positions]
    assert order.at(positions).tolist() == alone
    assert order.at(positions).dtype == np.int64


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
