"""zero2 and zero3 where the graph of an input gradient is numbered as on an accelerator: by a thread of its own."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from paragan.core.dist import ALONE
from paragan.parallel.base import strategy
from tests.gpu.test_ranks import held, played, world_on
from tests.laws.small_gan import distance


@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_r1_reaches_all_weights_before_they_are_reduced(name, monkeypatch):
    expected = held(played("none", ALONE))
    input_gradient = strategy.input_gradient

    def in_thread(out_B, x, scale=None):
        with ThreadPoolExecutor(1) as pool:  # its operations have low numbers, so that the backward runs them last
            return pool.submit(input_gradient, out_B, x, scale).result()

    monkeypatch.setattr(strategy, "input_gradient", in_thread)
    with world_on("cpu") as world:
        assert distance(held(played(name, world)), expected) <= 1e-10
