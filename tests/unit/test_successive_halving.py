"""Successive halving: which trials continue, how long they train, which factor is chosen."""

from __future__ import annotations

import pytest

from paragan.core.errors import DivergedError
from paragan.core.metric import Direction
from paragan.scaling.successive_halving import rank, successive_halving
from tests.probed_plans import fd


def halved(table, factors=(0.5, 1, 2), kimg=8):
    """The probe of a table {factor: score after kimg, 2 kimg, …}, and its trials (factor, kimg)."""
    calls = []
    left = {factor: list(scores) for factor, scores in table.items()}

    def score(factor, length):
        calls.append((factor, length))
        return left[factor].pop(0)

    return successive_halving(factors, kimg, score), calls


@pytest.mark.parametrize(
    ("table", "calls", "factor"),
    [
        ({0.5: [9], 1: [5, 5], 2: [3, 1]}, [(0.5, 8), (1, 8), (2, 8), (1, 16), (2, 16)], 2),
        ({0.5: [9], 1: [5, 1], 2: [3, 5]}, [(0.5, 8), (1, 8), (2, 8), (1, 16), (2, 16)], 1),
        ({0.5: [3, 4], 1: [9], 2: [5, 5]}, [(0.5, 8), (1, 8), (2, 8), (0.5, 16), (2, 16)], 0.5),
        ({0.5: [3, 6], 1: [4, 5], 2: [9]}, [(0.5, 8), (1, 8), (2, 8), (0.5, 16), (1, 16)], 1),
    ],
)
def test_better_two_of_three_train_twice_as_long_and_the_best_is_chosen(table, calls, factor):
    scores = {factor: [fd(value) for value in values] for factor, values in table.items()}
    probe, found = halved(scores)
    assert (found, probe.factor) == (calls, factor)
    assert [(one.factor, one.kimg) for one in probe.trials] == calls
    assert not probe.is_tied


def test_half_is_rounded_up_and_lengths_double():
    factors = (0.25, 0.5, 1, 2, 4)
    table = {factor: [fd(value)] * 4 for factor, value in zip(factors, (5, 3, 2, 1, 4), strict=True)}
    probe, calls = halved(table, factors, kimg=3)
    assert [length for _, length in calls] == [3] * 5 + [6] * 3 + [12] * 2
    assert calls[5:] == [(0.5, 6), (1, 6), (2, 6), (1, 12), (2, 12)]
    assert probe.factor == 2


def test_higher_scores_are_better_where_the_metric_says_so():
    table = {factor: [fd(value, direction=Direction.HIGHER)] * 2 for factor, value in ((0.5, 1), (1, 2), (2, 3))}
    assert halved(table)[0].factor == 2


@pytest.mark.parametrize(
    ("scores", "ranked"),
    [
        ({0.5: fd(3), 1: fd(3), 2: fd(3)}, [1, 0.5, 2]),
        ({0.5: fd(3), 2: fd(3)}, [0.5, 2]),
        ({0.5: fd(5, 1), 1: fd(4, 1), 2: fd(2, 1)}, [1, 2, 0.5]),  # 3 is in both intervals
        ({0.5: fd(5, 1), 1: fd(4, 1), 2: fd(1.9, 1)}, [2, 1, 0.5]),
        ({0.5: fd(1, 1), 1: fd(4, 1), 2: fd(3, 1)}, [0.5, 1, 2]),
        ({0.5: fd(3, 1), 2: fd(3.1, 1)}, [0.5, 2]),
    ],
)
def test_planned_rates_rank_before_those_that_are_not_clearly_better(scores, ranked):
    assert rank(scores) == ranked


def test_choice_by_overlapping_intervals_is_named():
    probe, calls = halved({0.5: [fd(3, 1), fd(2, 1)], 1: [fd(4, 1), fd(3, 1)], 2: [fd(3.5, 1)]})
    assert calls[3:] == [(0.5, 16), (1, 16)]  # 1 has the worst score, but not clearly
    assert probe.factor == 1 and probe.is_tied
    assert probe.reason == (
        "probe: x 1, whose ± overlaps with that of a better score; fd x 0.5: 2 ± 1, x 1: 3 ± 1 after 16 kimg; "
        "x 0.5: 3 ± 1, x 1: 4 ± 1, x 2: 3.5 ± 1 after 8 kimg"
    )


def test_diverged_trial_is_worse_than_any_score():
    probe, calls = halved({0.5: [fd(9), fd(9)], 1: [fd(8), fd(8)], 2: [None]})
    assert calls[3:] == [(0.5, 16), (1, 16)] and probe.factor == 1
    assert "x 2: diverged after 8 kimg" in probe.reason


def test_single_trial_that_did_not_diverge_is_chosen_without_training_longer():
    probe, calls = halved({0.5: [fd(9)], 1: [None], 2: [None]})
    assert len(calls) == 3 and probe.factor == 0.5


def test_trial_that_diverges_later_leaves_the_other():
    probe, _ = halved({0.5: [fd(9)], 1: [fd(8), fd(8)], 2: [fd(1), None]})
    assert probe.factor == 1 and not probe.is_tied


@pytest.mark.parametrize(
    ("table", "kimg", "names"),
    [
        ({0.5: [None], 1: [None], 2: [None]}, 8, "0.5, 1, 2"),
        ({0.5: [fd(1), None], 1: [fd(1), None], 2: [fd(2)]}, 16, "0.5, 1"),
    ],
)
def test_probe_in_which_all_diverge_is_refused_in_one_line(table, kimg, names):
    with pytest.raises(DivergedError) as refused:
        halved(table)
    text = f"the learning-rate probe diverged within {kimg} kimg with rates x {names}; lower g.optimizer.lr"
    assert str(refused.value).startswith(text) and "\n" not in str(refused.value)
