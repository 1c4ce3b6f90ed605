"""Rows, draws by position, the clock, nests of tensors: the values everything else stands on."""

from __future__ import annotations

import pytest
import torch

from paragan.core import rng
from paragan.core.clock import Clock, Every
from paragan.core.tree import map_tensors
from paragan.core.types import Batch, Feed, Report, Rows, Verdict
from paragan.game.prior import Prior


@pytest.mark.parametrize(("count", "n"), [(8, 1), (8, 3), (5, 5), (7, 2)])
def test_parts_cover_the_rows_in_order(count, n):
    rows = Rows(4, 10, count, 100)
    parts = rows.parts(n)
    assert [i for p in parts for i in range(p.first, p.first + p.count)] == list(range(10, 10 + count))
    assert max(p.count for p in parts) - min(p.count for p in parts) <= 1
    assert {(p.step, p.total) for p in parts} == {(4, 100)}


def test_feed_parts_cut_everything_alike():
    rows, x = Rows(0, 2, 6, 12), torch.arange(6.0)
    real = Batch(rows, x.view(6, 1, 1, 1), x.long(), x + 100)
    feed = Feed(rows, 0, x.view(6, 1), x.long(), x, real, (x[:4], x[4:]), version=3)
    for n in (2, 3):
        parts = feed.parts(n)
        for part in parts:
            here = torch.arange(part.rows.first - 2, part.rows.first - 2 + part.rows.count).float()
            assert torch.equal(part.z_BZ[:, 0], here)
            assert torch.equal(part.real.condition, here + 100)
            assert part.version == 3
        fakes = torch.cat([part.fakes[0] for part in parts])
        assert torch.equal(fakes, x)
    assert [len(part.fakes[0]) for part in feed.parts(2)] == [4, 2]  # as they were made
    assert [len(part.fakes[0]) for part in feed.parts(3)] == [2, 2, 2]


def test_draws_do_not_depend_on_how_the_batch_is_shared():
    prior, whole = Prior(7, 3, 5), Rows(2, 0, 10, 10)
    z, y = prior.draw("d", whole)
    for first, count in ((0, 4), (4, 1), (5, 5)):
        z_part, y_part = prior.draw("d", Rows(2, first, count, 10))
        assert torch.equal(z_part, z[first : first + count])
        assert torch.equal(y_part, y[first : first + count])
    for other in (Prior(8, 3, 5).draw("d", whole), prior.draw("g", whole), prior.draw("d", Rows(3, 0, 10, 10))):
        assert not torch.equal(other[0], z)
        assert not torch.equal(other[1], y)
    assert Prior(7, 3).draw("d", whole)[1] is None


def test_keys_are_the_same_on_every_machine():
    assert rng.key(0, "d/z", 3) == 3815250363818838614
    assert rng.key("a", "bc") != rng.key("ab", "c")


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    Prior(0, 4, 3).draw("d", Rows(0, 0, 8, 8))
    assert torch.equal(torch.rand(1), expected)


def test_every_is_due_once_per_period_whatever_the_step():
    every = Every(kimg=0.1)
    for batch in (7, 64, 250):
        clock, due = Clock(), 0
        while clock.images < 1000:
            before = clock.images
            clock.advance(batch)
            due += every.due(before, clock.images)
        assert due == min(clock.images // 100, clock.step)
    assert not Every(0).due(0, 10**9)


def test_map_tensors_reaches_every_nest():
    nest = {"a": (torch.ones(1), [torch.ones(1)]), "b": Verdict(torch.ones(1), None), "c": "text"}
    out = map_tensors(lambda t: t * 2, nest)
    assert out["a"][0] == 2
    assert out["a"][1][0] == 2
    assert out["b"].logits_B == 2
    assert out["b"].features is None
    assert out["c"] == "text"


def test_a_verdict_from_whatever_a_network_returns():
    logits, features = torch.zeros(3), torch.zeros(3, 2)
    assert Verdict.of(logits).logits_B is logits
    assert Verdict.of((logits, features)).features is features
    verdict = Verdict(logits, features)
    assert Verdict.of(verdict) is verdict
    assert [len(v.features) for v in verdict.split([1, 2])] == [1, 2]


def test_a_report_is_read_once_for_all():
    assert Report(1, 2, {"a": torch.tensor(1.5), "b": torch.tensor(2, dtype=torch.int64)}).read() == {
        "a": 1.5,
        "b": 2.0,
    }
    assert Report(1, 2, {}).read() == {}
