"""The order of turns of `skipping`: G on every batch, D on every n-th."""

import pytest

from paragan.core.types import Side
from paragan.game.options import AdversarialOptions
from paragan.parallel import none
from paragan.schemes import skipping
from tests.laws.small_gan import BATCH, batches, game, player


def played(every, per_step=1, steps=5, adversarial=None):
    """(side, which batch) of every turn, in order; and the game."""
    seats = [player(side, none.Strategy(), per_step=per_step if side is Side.D else 1) for side in Side]
    gan, turns = game(*seats), []
    gan.adversarial = adversarial or gan.adversarial
    for seat in seats:
        update = seat.update

        def told(turn, against, update=update):
            turns.append((turn.side.value, turn.feed.rows.step))
            return update(turn, against)

        seat.update = told
    scheme, stream = skipping.Scheme(skipping.Options(every)), batches()
    reports = [scheme.step(gan, stream) for _ in range(steps)]
    return turns, gan, reports


def test_d_plays_on_every_second_batch_and_first():
    turns, gan, reports = played(2)
    assert turns == [("d", 0), ("g", 0), ("g", 1), ("d", 2), ("g", 2), ("g", 3), ("d", 4), ("g", 4)]
    assert (gan.d.version, gan.g.version, gan.clock.step) == (3, 5, 5)
    assert [report.images for report in reports] == [BATCH, BATCH, 2 * BATCH, 2 * BATCH, 3 * BATCH]  # those D saw
    told = [{name.partition("/")[0] for name in report.scalars} for report in reports]
    assert told == [{"g", "d"}, {"g"}, {"g", "d"}, {"g"}, {"g", "d"}]


@pytest.mark.parametrize(
    ("every", "per_step", "expected"), [(1, 1, "dgdgdgdgdg"), (3, 1, "dgggdgg"), (2, 2, "ddggddggddg")]
)
def test_other_periods(every, per_step, expected):
    turns, _, _ = played(every, per_step)
    assert "".join(side for side, _ in turns) == expected
    assert [batch for side, batch in turns if side == "g"] == [per_step * (step + 1) - 1 for step in range(5)]


@pytest.mark.parametrize("every", [2, 3])
def test_times_of_weights_count_all_batches_and_the_start_says_so(every):
    """0.04 kimg of batches are 0.04 / every of the run's kimg, which counts the images of D."""
    turns, gan, _ = played(every, adversarial=AdversarialOptions(d_start_kimg=2 * BATCH / 1000), steps=2)
    assert (turns[-1], gan.d_has_begun, gan.d.version) == (("g", 1), False, 0)
    turns, gan, reports = played(every, adversarial=AdversarialOptions(d_start_kimg=2 * BATCH / 1000), steps=every + 1)
    assert (gan.d_has_begun, gan.d.version) == (True, 1)
    assert reports[-1].images == 2 * BATCH  # of one turn that was not due, and one that was
    scheme = skipping.Scheme(skipping.Options(every))
    assert f"one of {every} steps" in scheme.start_note(1) and f"{every} times as many" in scheme.start_note(1)


def test_a_scheme_that_skips_nothing_has_no_note():
    assert skipping.Scheme(skipping.Options(1)).start_note(1) is None
