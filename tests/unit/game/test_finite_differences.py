"""Approximate R1 and R2, and logit centring, against the plainest loop and the slopes that they stand for."""

from math import sqrt

import pytest
import torch
from torch import nn

from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Batch, Rows, Side, TurnInputs
from paragan.game.network import CalledNetwork, Calling
from paragan.parallel.base import blocks
from paragan.penalties import approximate_r1, approximate_r2
from tests.one_turn import BATCH, SEED, assert_plain, nets, turn

FILES = {"approximate_r1": approximate_r1, "approximate_r2": approximate_r2}


def chosen_by_hand(fraction):
    """Rows that are penalised: those whose multiples of the golden ratio have the smallest fractional parts."""
    num = max(1, round(fraction * BATCH))
    spread = sorted(range(BATCH), key=lambda row: row * ((sqrt(5) - 1) / 2) % 1)
    return sorted(spread[:num])


def by_hand(name, options, d, feed):
    """One sample after another."""
    rows = chosen_by_hand(options.fraction)
    x, y = (feed.real.image, feed.real.label) if name == "approximate_r1" else (feed.fakes[0], feed.label)
    noise = torch.randn((len(rows), *x.shape[1:]), generator=rng.generator(SEED, name, feed.rows.step)).double()
    weight = options.weight * options.interval * BATCH / len(rows)
    if options.divide_by_sigma_squared:
        weight /= options.sigma**2
    found = torch.zeros(BATCH, dtype=torch.float64)
    for number, row in enumerate(rows):
        here, there = x[row : row + 1], x[row : row + 1] + options.sigma * noise[number]
        label = y[row : row + 1]
        found[row] = weight * (d(here, label).logits_B[0] - d(there, label).logits_B[0]) ** 2
    return found


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(
    "wanted", [{}, {"weight": 2.0, "interval": 3, "sigma": 0.1, "divide_by_sigma_squared": True, "fraction": 0.34}]
)
@pytest.mark.parametrize("name", FILES)
def test_it_is_the_plain_loop(name, wanted, parts):
    pair, options = nets(), FILES[name].Options(**wanted)
    played = turn(Side.D, FILES[name].Penalty(options))
    expected = by_hand(name, options, pair[Side.D], played.feed)
    assert_plain(played, pair, expected, parts, rtol=1e-9, atol=1e-14, least=1e-6)


@pytest.mark.parametrize("name", FILES)
def test_micro_batch_without_rows_has_an_empty_term(name):
    """Another rank has rows of that micro-batch, and waits for this one in D's layers."""
    d = Quadratic()
    x = torch.zeros(0, 5, dtype=torch.float64)
    rows = Rows(step=0, first=0, count=2, total=4).parts(4)[2]
    assert not rows.count
    feed = TurnInputs(rows=rows, seed=SEED, tensors={}, real=Batch(rows, {"image": x}), fakes=(x,))
    logits = DiscriminatorOutput.of(d(x))
    called_rows = []
    d.register_forward_pre_hook(lambda module, inputs: called_rows.append(len(inputs[0])))
    penalty = FILES[name].Penalty(FILES[name].Options())
    term = penalty(
        PenaltyContext(
            network=CalledNetwork(module=d), feed=feed, outputs=Outputs(fake=logits, real=logits), input_gradient=None
        )
    )
    assert term.shape == (0,) and term.requires_grad and called_rows == [0]


class Quadratic(nn.Module):
    """x' A x + b' x, whose slope is known."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).double())
        self.b = nn.Parameter(torch.randn(5, generator=torch.Generator().manual_seed(2)).double())

    def forward(self, x, y=None):
        return ((x @ self.a) * x).sum(1) + x @ self.b

    def slope(self, x):
        return x @ (self.a + self.a.T) + self.b


def called(penalty, d, x_BF, augmented=lambda x, kind: x):
    rows = Rows(step=0, first=0, count=len(x_BF), total=len(x_BF))
    feed = TurnInputs(rows=rows, seed=SEED, tensors={}, real=Batch(rows, {"image": x_BF}), fakes=(x_BF,))
    logits = DiscriminatorOutput.of(d(augmented(x_BF, "real")))
    return penalty(
        PenaltyContext(
            network=CalledNetwork(module=d),
            feed=feed,
            outputs=Outputs(fake=logits, real=logits),
            input_gradient=None,
            augmented=augmented,
        )
    )


@pytest.mark.parametrize("name", FILES)
def test_over_sigma_squared_it_tends_to_the_squared_slope(name):
    d, x = Quadratic(), torch.randn(20_000, 5, generator=torch.Generator().manual_seed(3)).double()
    squared = d.slope(x).square().sum(1).mean().item()
    errors = []
    for sigma in (1.0, 0.1, 1e-4):
        options = FILES[name].Options(weight=1.0, sigma=sigma, divide_by_sigma_squared=True)
        errors.append(abs(called(FILES[name].Penalty(options), d, x).mean().item() / squared - 1))
    assert errors[0] > 0.2 and errors[2] < 0.03, errors


def test_half_of_it_is_r1_of_weight_one():
    d, x = Quadratic(), torch.randn(20_000, 5, generator=torch.Generator().manual_seed(3)).double()
    options = approximate_r1.Options(weight=0.5, sigma=1e-4, divide_by_sigma_squared=True, fraction=0.5)
    expected = d.slope(x).square().sum(1).mean() / 2
    assert called(approximate_r1.Penalty(options), d, x).mean().item() == pytest.approx(expected.item(), rel=0.04)


def test_both_samples_are_augmented_by_the_same_draws():
    d, x = Quadratic(), torch.randn(8, 5, generator=torch.Generator().manual_seed(3)).double()
    penalty = approximate_r1.Penalty(approximate_r1.Options(sigma=1e-4, divide_by_sigma_squared=True, weight=1.0))
    moved = called(penalty, d, x, augmented=lambda x, kind: x + {"real": 7.0}[kind])
    torch.testing.assert_close(moved, called(penalty, d, x + 7.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("way", ["recomputed", "compiled"])
def test_it_needs_no_second_derivative(way):
    """Of a compiled or recomputed D the values and gradients are those of the plain one."""

    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1), nn.Flatten(0)).double()

    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(3)).double()
    plain, other = made(), made()
    calling = Calling()
    if way == "recomputed":
        blocks.checkpoint_activations(other)
    else:
        calling = Calling(compiler=lambda module: torch.compile(module, backend="aot_eager"))
    rows = Rows(step=0, first=0, count=6, total=6)
    found = []
    for net, how in ((plain, Calling()), (other, calling)):
        network = CalledNetwork(module=net, calling=how)
        logits = DiscriminatorOutput.of(network(x))
        feed = TurnInputs(rows=rows, seed=SEED, tensors={}, real=Batch(rows, {"image": x}), fakes=(x,))
        penalty = approximate_r1.Penalty(approximate_r1.Options())
        loss_B = penalty(
            PenaltyContext(network=network, feed=feed, outputs=Outputs(fake=logits, real=logits), input_gradient=None)
        )
        loss_B.sum().backward()
        found.append((loss_B.detach(), [p.grad for p in net.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-14)


class Two(nn.Module):
    """Two discriminators, or one of them."""

    def __init__(self, *names):
        super().__init__()
        self.names = names
        slopes = {"a": 1.0, "b": -3.0}
        self.slopes = nn.ParameterDict({k: nn.Parameter(torch.tensor(slopes[k]).double()) for k in names})

    def forward(self, x, y=None):
        return {name: (x * self.slopes[name]).sin() for name in self.names}


def test_several_discriminators_add_theirs():
    penalty = approximate_r1.Penalty(approximate_r1.Options(weight=3.0))
    x = torch.linspace(0, 1, 12).double().reshape(4, 3)
    both, a, b = (called(penalty, Two(*names), x) for names in (("a", "b"), ("a",), ("b",)))
    torch.testing.assert_close(both, a + b, rtol=1e-12, atol=0)
    assert a.min() > 0 and b.min() > 0
