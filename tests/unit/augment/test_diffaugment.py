"""Each of the three operations against the plainest loop over images; D alone is shown the result."""

import pytest
import torch

import paragan as pg
from paragan.augment.diffaugment import Augment, Options, _jitter_colours, shift_images
from paragan.core import rng
from paragan.core.types import Rows, Side
from paragan.parallel import none
from tests.laws.small_gan import batches, game, player

ROWS = Rows(step=0, first=0, count=40, total=40)
X = rng.normal(1, "x", ROWS, (3, 16, 16)).double()
DRAWS = rng.uniform(7, "s", ROWS, (7,))


def test_colour():
    for x, (b, s, c), out in zip(X, DRAWS[:, :3].double(), _jitter_colours(X, DRAWS[:, :3].double()), strict=True):
        y = x + (b - 0.5)
        y = y.mean(0) + (y - y.mean(0)) * 2 * s
        assert torch.allclose(out, y.mean() + (y - y.mean()) * (c + 0.5), atol=1e-12)


def test_translation_moves_by_up_to_an_eighth_and_fills_with_zero():
    shifts = set()
    for x, draws, out in zip(X, DRAWS[:, 3:5], shift_images(X, DRAWS[:, 3:5]), strict=True):
        down, right = (int(draw * 5) - 2 for draw in draws)
        shifts.add((down, right))
        framed = torch.zeros(3, 20, 20, dtype=x.dtype)
        framed[:, 2 + down : 18 + down, 2 + right : 18 + right] = x
        assert torch.equal(out, framed[:, 2:18, 2:18])
    assert {d for d, _ in shifts} == {r for _, r in shifts} == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize(("height", "width"), [(16, 16), (10, 12)])
def test_cutout_is_the_authors_square_at_a_random_centre(height, width):
    """Rows and columns around the centre, of half a side; those beyond the edge fall on it, as in the authors' code."""
    x = torch.ones(40, 3, height, width)
    sizes = set()
    for draws, image in zip(DRAWS[:, 5:], Augment(Options(False, False))(x, 7, "s", ROWS), strict=True):
        expected, near = torch.ones(height, width), []
        for draw, side in zip(draws.tolist(), (height, width), strict=True):
            hole = int(side / 2 + 0.5)
            centre = int(draw * (side + 1 - hole % 2))
            near.append({min(max(centre - hole // 2 + i, 0), side - 1) for i in range(hole)})
        for row in near[0]:
            for column in near[1]:
                expected[row, column] = 0
        assert torch.equal(image, expected.expand(3, -1, -1))
        sizes.add(tuple(map(len, near)))
    assert len(sizes) > 5


def test_d_sees_augmented_images_and_penalties_do_not():
    """Both turns, real and fake, with streams of their own; the images in the outputs are G's."""
    shown, seen = [], []

    class Sees(pg.Penalty):
        name = "sees"

        def __call__(self, part):
            seen.append(part.outputs.images)
            return part.outputs.fake.logits_B * 0

    def augment(x, seed, stream, rows):
        shown.append((stream, rows.count))
        return x * 0

    gan = game(*(player(side, none.Strategy()) for side in Side))
    gan.augment, gan.d_penalties = augment, (Sees(),)
    real = next(batches())
    gan.g.update(gan.g_turn(real), gan.d)
    gan.d.update(gan.d_turn(real), gan.g)
    assert [stream for stream, _ in shown] == ["augment/g/fake", "augment/d/fake", "augment/d/real"]
    assert {count for _, count in shown} == {8}
    assert seen[0].abs().sum() > 0
