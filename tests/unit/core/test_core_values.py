"""Rows, draws by position, the clock, nests of tensors: the values everything else stands on."""

import pytest
import torch

from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.tree import map_tensors
from paragan.core.types import Batch, Clock, Rows, TurnInputs, is_due
from paragan.game.prior import Prior


def numbers(rows: Rows) -> list[int]:
    return list(range(rows.total))[rows.window]


@pytest.mark.parametrize(("count", "n"), [(8, 1), (8, 3), (5, 5), (7, 2)])
def test_shares_cover_the_rows_in_order(count, n):
    shares = Rows(step=4, first=10, count=count, total=100).shares(n)
    assert [i for s in shares for i in numbers(s)] == list(range(10, 10 + count))
    assert max(s.count for s in shares) - min(s.count for s in shares) <= 1
    assert {(s.step, s.total) for s in shares} == {(4, 100)}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize(("total", "n"), [(12, 1), (12, 4), (11, 3), (9, 2)])
def test_a_micro_batch_is_the_same_rows_over_any_number_of_ranks(world, total, n):
    whole = Rows(step=0, first=0, count=total, total=total)
    dealt = [share.parts(n) for share in whole.shares(world)]
    for k in range(n):
        assert sorted(i for parts in dealt for i in numbers(parts[k])) == list(range(k, total, n))
        assert all(parts[k].count == len(numbers(parts[k])) for parts in dealt)


@pytest.mark.parametrize("first", [0, 2])
def test_turn_inputs_parts_cut_all_tensors_equally(first):
    rows, x = Rows(step=0, first=first, count=6, total=12), torch.arange(6.0)
    real = Batch(rows, {"image": x.view(6, 1, 1, 1), "label": x.long(), "condition": x + 100})
    made = TurnInputs(rows=rows, seed=0, tensors={"latent": x}).parts(2)
    fakes = tuple(part.latent for part in made)
    feed = TurnInputs(
        rows=rows, seed=0, tensors={"latent": x.view(6, 1), "label": x.long(), "condition": x}, real=real, fakes=fakes
    )
    for n in (1, 2, 3):
        parts = feed.parts(n)
        for part in parts:
            here = torch.tensor(numbers(part.rows)).float() - first
            assert torch.equal(part.latent[:, 0], here)
            assert torch.equal(part.real.condition, here + 100)
            assert torch.equal(part.fakes[0], here)
        assert torch.equal(torch.cat([part.latent[:, 0] for part in parts]).sort().values, x)


def test_draws_do_not_depend_on_how_the_batch_is_shared():
    prior, whole = Prior(seed=7, latent=3, num_classes=5), Rows(step=2, first=0, count=10, total=10)
    z, y = prior.draw("d", whole)
    for first, count in ((0, 4), (4, 1), (5, 5)):
        z_part, y_part = prior.draw("d", Rows(step=2, first=first, count=count, total=10))
        assert torch.equal(z_part, z[first : first + count])
        assert torch.equal(y_part, y[first : first + count])
    for other in (
        Prior(seed=8, latent=3, num_classes=5).draw("d", whole),
        prior.draw("g", whole),
        prior.draw("d", Rows(step=3, first=0, count=10, total=10)),
    ):
        assert not torch.equal(other[0], z)
        assert not torch.equal(other[1], y)
    assert Prior(seed=7, latent=3).draw("d", whole)[1] is None


def test_keys_are_the_same_on_every_machine():
    assert rng.key(0, "d/z", 3) == 3815250363818838614
    assert rng.key("a", "bc") != rng.key("ab", "c")


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    Prior(seed=0, latent=4, num_classes=3).draw("d", Rows(step=0, first=0, count=8, total=8))
    assert torch.equal(torch.rand(1), expected)


def test_every_is_due_once_per_period_whatever_the_step():
    for batch in (7, 64, 250):
        clock, due = Clock(), 0
        while clock.images < 1000:
            before = clock.images
            clock.advance(batch)
            due += is_due(0.1, before, clock.images)
        assert due == min(clock.images // 100, clock.step)
    assert not is_due(0, 0, 10**9)


@pytest.mark.parametrize("kimg", [2.007, 2.011, 2.015])  # times 1000 a little more than a whole number
def test_every_is_due_at_the_image_that_its_decimals_name(kimg):
    images = round(kimg * 1000)
    assert is_due(kimg, images - 1, images)


def test_map_tensors_reaches_every_nest():
    nest = {"a": (torch.ones(1), [torch.ones(1)]), "b": DiscriminatorOutput(torch.ones(1), None), "c": "text"}
    out = map_tensors(lambda t: t * 2, nest)
    assert out["a"][0] == 2
    assert out["a"][1][0] == 2
    assert out["b"].logits_B == 2
    assert out["b"].features is None
    assert out["c"] == "text"


def test_a_verdict_from_whatever_a_network_returns():
    logits, features = torch.zeros(3), torch.zeros(3, 2)
    assert DiscriminatorOutput.of(logits).logits_B is logits
    assert DiscriminatorOutput.of((logits, features)).features is features
    verdict = DiscriminatorOutput(logits, features)
    assert DiscriminatorOutput.of(verdict) is verdict
    assert [len(v.features) for v in verdict.split([1, 2])] == [1, 2]
