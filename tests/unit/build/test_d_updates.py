"""D by coin: which of its steps are taken."""

import pytest

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core import rng
from paragan.schemes import synchronous
from tests.laws.small_gan import BATCH, batches, small_game
from tests.tiny_run import SMALL, TINY


def updated(gan, stream, steps):
    """The batches at which D was updated."""
    found = []
    for step in range(steps):
        before = gan.d.version
        synchronous.step(gan, stream)
        found += [step] if gan.d.version > before else []
    return found


def test_coin_is_drawn_by_seed_and_batch_alone():
    whole = updated(small_game(update_probability=2 / 3), batches(), 60)
    assert whole == [n for n in range(60) if rng.fraction(5, "d/update", n) < 2 / 3]
    assert updated(small_game(update_probability=2 / 3), batches(first=5, count=3), 60) == whole
    gan = small_game(update_probability=2 / 3)
    assert gan.clock.images == 0 and gan.d_pauses == "d.update_probability"
    many = sum(rng.fraction(0, "d/update", n) < 2 / 3 for n in range(30_000)) / 30_000
    assert many == pytest.approx(2 / 3, abs=0.01)


def test_coin_of_each_batch_of_a_step():
    gan = small_game(3, update_probability=0.5)
    stream = batches()
    for _ in range(5):
        synchronous.step(gan, stream)
    assert gan.d.version == sum(rng.fraction(5, "d/update", n) < 0.5 for n in range(15))
    assert gan.clock.images == 15 * BATCH


def test_g_has_no_pauses(tmp_path):
    config = read_recipe("digits", [*TINY, *SMALL, "g.update_probability=0.5"])
    with pytest.raises(pg.ConfigError, match=r"^g\.update_probability is not supported: .*; set d\."):
        build.trainer(config, tmp_path, print, stop=lambda: False)
