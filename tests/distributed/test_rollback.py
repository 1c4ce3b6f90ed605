"""Ranks roll back together, by what rank 0 measures, to what one process would have."""

import pytest

from paragan.core.dist import ALONE
from tests.distributed import cases_rollback as cases
from tests.marks import slow

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("sign", "kind"),
    [("telemetry", "ddp"), slow("score", "ddp"), slow("telemetry", "zero3")],
)
def test_rollback_on_two_ranks_equals_that_of_one_process(tmp_path, two_ranks, sign, kind):
    alone = cases.train_alone(ALONE, str(tmp_path), sign)
    (rollback,), *rest = alone
    to_step, length, rates = {"telemetry": (1, 6 + 5, [5e-3, 5e-3]), "score": (2, 9 + 4, [5e-3, 5e-3])}[sign]
    assert rollback["to_step"] == to_step
    assert rest == [length, length, rates]
    settings = {"folder": str(tmp_path), "kind": kind, "sign": sign}
    for *found, difference in two_ranks.run(f"{cases.__name__}:roll_back", **settings):
        assert found == alone
        assert difference <= 1e-10


@pytest.mark.parametrize(("reuse", "of_one"), [(True, "shared_fakes"), slow(False, "synchronous")])
def test_rollback_of_players_on_separate_ranks_equals_that_of_one_process(tmp_path, two_ranks, reuse, of_one):
    alone, length = cases.with_synchronous_scheme(ALONE, str(tmp_path), of_one, (6, 8))
    assert len(alone) == 1
    found = two_ranks.run(f"{cases.__name__}:on_separate_ranks", folder=str(tmp_path), reuse=reuse, bad=(6, 8))
    assert found == [[alone, length, "g", 0.0], [alone, length, "d", 0.0]]


@pytest.mark.parametrize("side", ["g", slow("d")])
def test_divergence_of_either_player_rolls_back_all_ranks(tmp_path, two_ranks, side):
    words = ["scheme={name: asynchronous}"]
    found = two_ranks.run(f"{cases.__name__}:spoilt", folder=str(tmp_path), words=words, side=side, step=5)
    (texts, length, _, is_finite, _), (_, other, _, is_other_finite, _) = found
    assert [one["name"] for one in texts] == ["diverged"] and texts[0]["to_step"] <= 3
    assert length == other > 12 and is_finite and is_other_finite


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 5])
def test_rollback_with_rarer_synchronisation_waits_until_ranks_are_equal(tmp_path, four_ranks, step):
    local = "strategy={name: local_sgd, every: 2}"
    words = ["scheme={name: asynchronous}", f"g.{local}", f"d.{local}"]
    found = four_ranks.run(f"{cases.__name__}:spoilt", folder=str(tmp_path), words=words, side="d", step=step)
    (rollback,) = found[0][0]
    assert rollback["name"] == "diverged" and rollback["to_step"] % 2 == 0
    lengths = {length for _, length, *_ in found}
    assert len(lengths) == 1 and lengths.pop() % 2 == 0
    assert all(is_finite for *_, is_finite, _ in found)
    sums = {side: {total for _, _, here, _, total in found if here == side} for side in "gd"}
    assert [len(totals) for totals in sums.values()] == [1, 1]
