"""The diversity of samples, relative to that of real images."""

import math

import pytest
import torch

from paragan.datasets.base.in_memory import InMemorySource
from paragan.engine.telemetry import nearest_distance
from tests.unit.engine.test_telemetry import NAMES, look, outside_game


def test_diversity_is_low_for_copies():
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(64, 3, 16, 16, generator=draw)
    few = images[:8].repeat(8, 1, 1, 1)
    assert nearest_distance(few) < 0.01 * nearest_distance(images)
    assert nearest_distance(few + torch.rand(few.shape, generator=draw) / 10) < 0.2 * nearest_distance(images)
    assert nearest_distance(images[:2]) == pytest.approx(float((images[0] - images[1]).norm()), rel=1e-4)


@pytest.mark.parametrize(
    "images",
    [torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8).repeat(6, 1, 1, 1), torch.rand(30, 3, 8, 8).repeat(2, 1, 1, 1)],
)
def test_distance_of_equal_images_is_exactly_0(images):
    assert nearest_distance(images * 2 - 1) == 0


@pytest.mark.parametrize("count", [1, 40])
def test_equal_real_images_have_no_diversity(count):
    images = torch.zeros(count, 1, 8, 8, dtype=torch.uint8)
    train = InMemorySource(images, torch.arange(count) % 3, tuple("abc"))
    values = look(train=train)(outside_game())
    assert values.keys() == NAMES - {"diversity", "gradient_norm_ratio"}
    assert all(math.isfinite(value) for value in values.values())
