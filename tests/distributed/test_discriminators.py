"""Four discriminators of unequal size on two ranks are the publications' plain loops, in float64, saved and resumed."""

import pytest

from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_discriminators"
TOLERANCE = 1e-12


@pytest.mark.parametrize(
    ("name", "strategies", "scheme", "parts"),
    [
        ("hifigan", "ddp", "synchronous", 2),
        ("dac", "zero3", "synchronous", 2),
        ("vocos", "zero3", "shared_fakes", 2),
        ("relativistic", "ddp", "synchronous", 1),
        slow("hifigan", "zero3", "shared_fakes", 2),
        slow("dac", "ddp", "shared_fakes", 1),
        slow("vocos", "ddp", "synchronous", 2),
        slow("vocos", "zero1", "synchronous", 1),
        slow("dac", "zero2", "synchronous", 2),
    ],
)
def test_two_ranks_are_the_publication(two_ranks, tmp_path, name, strategies, scheme, parts):
    how = {"name": name, "strategies": strategies, "scheme": scheme, "parts": parts}
    for weights, losses in two_ranks.run(f"{CASES}:publication", folder=str(tmp_path), **how):
        assert weights <= TOLERANCE and losses < 1e-5


@pytest.mark.parametrize("reuse", [False, True])
def test_ranks_of_one_player_each_are_the_plain_game(two_ranks, reuse):
    names = ["mpd/0", "mpd/1", "mrd/0", "mrd/1"]
    expected = [["g", 0.0, True, names], ["d", 0.0, True, names]]
    assert two_ranks.run(f"{CASES}:no_delay", reuse=reuse) == expected
