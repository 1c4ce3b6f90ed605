"""Layers that draw: found, equal in any layout, and put back."""

import pytest
import torch
from torch import nn

from paragan.core import rng
from paragan.core.types import Rows
from paragan.layers.random import Dropout, preserved_state, uses_random_numbers


def dropped(x, p=0.25, seed=0):
    torch.manual_seed(seed)
    return Dropout(p)(x.clone(memory_format=torch.preserve_format))


def test_dropout_preserves_the_mean_and_drops_the_given_share():
    out = dropped(torch.ones(64, 8, 16, 16))
    assert out.unique().tolist() == [0, pytest.approx(1 / 0.75)]
    assert out.mean() == pytest.approx(1, abs=0.01)
    assert torch.equal(Dropout(0.25).eval()(torch.ones(5)), torch.ones(5))


def test_dropout_is_the_same_in_any_layout_and_format():
    x = torch.rand(2, 6, 5, 4) + 1
    plain = dropped(x)
    assert torch.equal(dropped(x.contiguous(memory_format=torch.channels_last)), plain)
    assert torch.equal(dropped(x.double()) == 0, plain == 0)
    assert torch.equal(dropped(x.bfloat16()) == 0, plain == 0)
    assert dropped(x.bfloat16()).dtype == torch.bfloat16
    assert not torch.equal(dropped(x, seed=1), plain)


def test_gradients_pass_where_it_lets_values_pass():
    x = torch.ones(4, 50, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    out = Dropout(0.5)(x * 1)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, out.detach())


class Says(nn.Module):
    draws = True


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Dropout(0.5), True),
        (nn.Dropout2d(), True),
        (Says(), True),
        (nn.Linear(2, 2), False),
        (nn.BatchNorm1d(2), False),
    ],
)
def test_who_draws(layer, expected):
    assert uses_random_numbers(nn.Sequential(nn.ReLU(), layer)) is expected


def test_untouched_puts_back_buffers_and_generators():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    with preserved_state(net):
        net(torch.randn(5, 3))
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


KEYS = rng.row_keys(5, Rows(step=0, first=0, count=64, total=64), torch.device("cpu"))


def test_hash_is_splitmix64():
    """Its first numbers of the seed 0, as published with the algorithm."""
    found = rng._scrambled(torch.arange(1, 4) * rng._GOLDEN)
    assert [value % 2**64 for value in found.tolist()] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_numbers_by_key_have_the_moments_of_their_distribution():
    uniform = rng.uniform_by_key(KEYS, 7, (100, 50), torch.float64)
    normal = rng.normal_by_key(KEYS, 7, (100, 50), torch.float64)
    assert uniform.min() >= 0 and uniform.max() < 1
    for power in range(1, 5):
        assert uniform.pow(power).mean() == pytest.approx(1 / (1 + power), abs=0.003)
        assert normal.pow(power).mean() == pytest.approx((0, 1, 0, 3)[power - 1], abs=0.05)
    counts = torch.histc(uniform, 256, 0, 1)
    assert ((counts - 1250).square() / 1250).sum() < 255 + 5 * (2 * 255) ** 0.5


@pytest.mark.parametrize("draw", [rng.uniform_by_key, rng.normal_by_key])
def test_numbers_by_key_are_uncorrelated_over_rows_streams_and_places(draw):
    a, b = draw(KEYS, 1, (5000,), torch.float64), draw(KEYS, 2, (5000,), torch.float64)
    rows = torch.corrcoef(torch.cat([a, b])) - torch.eye(128)
    places = torch.corrcoef(torch.cat([a[:, :60].T, a[:, 60:120].T])) - torch.eye(120)
    following = torch.corrcoef(torch.stack([a[:, :-1].flatten(), a[:, 1:].flatten()]))[0, 1]
    assert rows.abs().max() < 6 / 5000**0.5 and places.abs().max() < 6 / 64**0.5 and abs(following) < 0.01


def test_numbers_by_key_are_those_of_their_rows_in_any_format():
    part = rng.row_keys(5, Rows(step=0, first=3, count=10, total=64, stride=2), torch.device("cpu"))
    assert torch.equal(part, KEYS[3:23:2])
    for draw in (rng.uniform_by_key, rng.normal_by_key):
        whole = draw(KEYS, 1, (3, 2), torch.float64)
        assert torch.equal(draw(part, 1, (3, 2), torch.float64), whole[3:23:2])
        torch.testing.assert_close(draw(KEYS, 1, (3, 2), torch.float32).double(), whole, rtol=0, atol=1e-5)


def test_seeds_of_torch_are_those_of_manual_seed():
    drawn = []
    for seed in (torch.manual_seed, rng.seed_torch, rng.seed_globally):
        seed(5)
        drawn.append(torch.rand(4))
    assert all(torch.equal(drawn[0], other) for other in drawn)


def test_an_accelerator_is_seeded_too(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    rng.seed_torch(5)
    assert seeds == [5]
