"""Schedule of a pipeline, against formulas and its own rules."""

from __future__ import annotations

import itertools

import pytest

from paragan.parallel._pipeline_cuts import idle_share
from paragan.scaling.pipeline_schedule import ChunkTime, idle_share_of, schedule


def chunks(seconds, ranks):
    return [ChunkTime(number % ranks, value, 2 * value) for number, value in enumerate(seconds)]


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_schedule_of_equal_stages_has_the_bubble_of_gpipe(stages, micro_batches):
    found = idle_share_of(schedule(chunks([1.0] * stages, stages), micro_batches))
    assert found == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_schedule_of_unequal_stages_waits_for_the_longest():
    seconds = (1.0, 3.0, 2.0)
    found = idle_share_of(schedule(chunks(seconds, 3), 4))
    assert found == pytest.approx(idle_share(seconds, 4))


@pytest.mark.parametrize("micro_batches", [4, 8])
def test_schedule_interleaved_divides_the_bubble(micro_batches):
    """v chunks per rank: (S - 1) / (v M + S - 1), Narayanan et al. 2021, section 2.2."""
    found = idle_share_of(schedule(chunks([1.0] * 8, 4), micro_batches))
    assert found == pytest.approx(3 / (2 * micro_batches + 3))


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 4)])
def test_schedule_with_split_backward_waits_for_gradients_of_inputs_only(stages, micro_batches):
    """Forward, gradients of inputs and of weights take 1 each: one third less waiting (Qi et al. 2024)."""
    equal = [ChunkTime(rank, 1.0, 2.0, 1.0) for rank in range(stages)]
    found = idle_share_of(schedule(equal, micro_batches))
    waiting = 2 * (stages - 1)
    assert found == pytest.approx(waiting / (3 * micro_batches + waiting))


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 1), (2, 8), (4, 4), (4, 16), (8, 32)])
def test_schedule_1f1b_has_nearly_the_bubble_of_gpipe_and_holds_fewer_outputs(stages, micro_batches):
    found = schedule(chunks([1.0] * stages, stages), micro_batches, alternates=True)
    gpipe = (stages - 1) / (micro_batches + stages - 1)
    assert gpipe - 1e-9 <= idle_share_of(found) <= 1.1 * gpipe + 1e-9
    first = sorted((one.start_s, -1 if one.is_backward else 1) for one in found if one.rank == 0)
    assert max(itertools.accumulate(change for _, change in first)) <= 1.5 * stages + 1


@pytest.mark.parametrize("alternates", [False, True])
def test_schedule_no_rank_computes_twice_at_a_time_and_inputs_come_first(alternates):
    found = schedule(chunks([1.0, 2.5, 0.5, 1.5], 2), 3, alternates)
    for rank in range(2):
        mine = sorted((one.start_s, one.stop_s) for one in found if one.rank == rank)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(mine))
    at = {(one.chunk, one.micro_batch, one.is_backward): one for one in found}
    assert len(at) == 4 * 3 * 2
    for (chunk, micro_batch, is_backward), one in at.items():
        needed = at.get((chunk + (1 if is_backward else -1), micro_batch, is_backward))
        assert needed is None or needed.stop_s <= one.start_s
        forwards = (
            each.stop_s for each in found if not each.is_backward and alternates <= (each.micro_batch == micro_batch)
        )
        assert not is_backward or one.start_s >= max(forwards)
