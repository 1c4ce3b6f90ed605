"""The recipe `translate`: images of two kinds, the networks, the cycle, a run, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.datasets import unpaired
from paragan.models import cyclegan
from paragan.penalties import cycle

SMALL = {
    "data.size": 16,
    "data.held_out": 0.3,
    "model": {"name": "cyclegan", "width": 4, "blocks": 1},
    "train.batch": 2,
    "every.log_steps": 1,
    "every.sample_kimg": 0.004,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten dark images and seven bright ones, of one level each."""
    root = tmp_path_factory.mktemp("kinds")
    for name, count, level in (("dark", 10, 0), ("bright", 7, 200)):
        (root / name).mkdir()
        for number in range(count):
            Image.new("RGB", (16, 16), (level + number,) * 3).save(root / name / f"{number}.png")
    return root


def source(folder, split="train", **options):
    return unpaired.source(unpaired.Options(path=str(folder), size=16, held_out=0.2, **options), split)


def test_sides_hold_their_kinds_and_partners_are_drawn_by_place(folder):
    found = source(folder, a="dark", b="bright")
    rows = np.arange(len(found))
    left, right = found.fetch(rows, rows, seed=1)["both"].chunk(2, 3)
    assert left.max() < 100 <= right.min() and len(left.unique()) == len(found)
    assert torch.equal(found.fetch(rows[3:5], rows[3:5], seed=1)["both"][:, :, :, 16:], right[3:5])
    other = found.fetch(rows, rows + len(found), seed=1)["both"]
    assert torch.equal(other[..., :16], left) and not torch.equal(other[..., 16:], right)
    assert len(right.unique()) > 2
    held_out = source(folder, "held_out")  # bright is the first in the alphabet
    assert held_out.fetch(np.arange(1))["both"][..., :16].min() >= 100


def test_generator_translates_both_sides_and_back():
    g = cyclegan.Generator(cyclegan.Options(width=4, blocks=1), (3, 16, 32)).double()
    both = torch.randn(2, 3, 16, 32).double()
    a, b = both.chunk(2, 3)
    made = g(both)
    fake_a, fake_b = g.to_a(b), g.to_b(a)
    torch.testing.assert_close(made.images, torch.cat([fake_a, fake_b], 3))
    torch.testing.assert_close(made.extra["cycle"], torch.cat([g.to_a(fake_b), g.to_b(fake_a)], 3))
    torch.testing.assert_close(made.extra["identity"], torch.cat([g.to_a(a), g.to_b(b)], 3))


def test_penalty_is_the_sum_over_both_kinds():
    real, back, same = (torch.randn(3, 3, 4, 8).double() for _ in range(3))
    rows = Rows(step=0, first=0, count=3, total=3)
    feed = TurnInputs(rows=rows, seed=0, real=Batch(rows, {"both": real}), discriminator_arguments=("both",))
    context = pg.PenaltyContext(
        network=None,
        feed=feed,
        outputs=pg.Outputs(fake=None, real=None, images=real, extra={"cycle": back, "identity": same}),
        input_gradient=None,
    )
    found = cycle.Penalty(cycle.Options(weight=10.0, identity=0.5))(context)
    sides = [(x - real).abs().chunk(2, 3) for x in (back, same)]
    (cycle_a, cycle_b), (same_a, same_b) = [[side.mean((1, 2, 3)) for side in pair] for pair in sides]
    torch.testing.assert_close(found, 10 * (cycle_a + cycle_b) + 5 * (same_a + same_b))
