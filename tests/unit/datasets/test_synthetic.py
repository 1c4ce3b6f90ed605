"""Pictures that are drawn: each row by itself, the same every time, with the distribution that is promised."""

import pytest
import torch

from paragan.datasets import synthetic
from paragan.datasets.synthetic import Options, source

KINDS = ("shapes", "ring", "grid")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_every_kind_and_size(kind, size):
    drawn = source(Options(kind, size, 200), "train")
    x, y = drawn.fetch(range(200)).values()
    assert tuple(x.shape) == (200, *drawn.shape)
    assert len(y.unique()) == len(drawn.class_names) == {"shapes": 5, "ring": 8, "grid": 25}[kind]
    assert x.float().std((1, 2, 3)).min() > 1  # something to see in each


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_and_splits_have_different_images(kind):
    options = Options(kind, 16, 200)
    one = source(options, "train").fetch(range(20))["image"]
    assert torch.equal(one, source(options, "train").fetch(range(20))["image"])
    assert not torch.equal(one, source(options, "held_out").fetch(range(20))["image"])
    assert not torch.equal(one, source(Options(kind, 16, 200, seed=1), "train").fetch(range(20))["image"])


def test_more_images_do_not_change_the_first_ones():
    few, many = source(Options(num_images=20), "train"), source(Options(num_images=2**40), "train")
    assert torch.equal(few.fetch(range(20))["image"], many.fetch(range(20))["image"])
    assert len(many) == 2**40
    assert many.fetch([2**40 - 1])["image"].shape == (1, 3, 32, 32)


@pytest.mark.parametrize(("kind", "modes"), [("ring", 8), ("grid", 25)])
def test_dots_lie_where_their_class_says(kind, modes):
    """The centre of mass of the light, against the centre of the Gaussian."""
    drawn = source(Options(kind, 64, 400), "train")
    x, y = drawn.fetch(range(400)).values()
    light = x[:, 0].double()
    light = light / light.sum((1, 2), keepdim=True)
    axis = (torch.arange(64).double() + 0.5) / 32 - 1
    found = torch.stack([(light.sum(1) * axis).sum(1), (light.sum(2) * axis).sum(1)], 1)
    expected = torch.stack([torch.from_numpy(synthetic._gaussian_centre(kind, int(label))) for label in y])
    away = found - expected
    assert away.mean().abs() < 0.01
    assert 0.015 < away.std() < 0.025
    assert len({tuple(centre.tolist()) for centre in expected}) == modes
    reach = expected.norm(dim=1) if kind == "ring" else expected.abs().max(1).values
    assert reach.max() == pytest.approx({"ring": 0.7, "grid": 0.75}[kind])
