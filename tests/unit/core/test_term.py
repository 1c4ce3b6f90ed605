"""Own losses on what a generator returns beside images, through the plain player."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.types import Side
from paragan.losses import hinge
from paragan.schemes import shared_fakes, synchronous

INPUTS = pg.TurnInputs(rows=pg.Rows(step=0, first=0, count=4, total=4), seed=0)


class Two(nn.Module):
    """Images, and a value per sample that only a term sees."""

    def __init__(self):
        super().__init__()
        self.image, self.other = nn.Linear(3, 4), nn.Linear(3, 1)

    def forward(self, z):
        return pg.GeneratorOutput(self.image(z), {"other": self.other(z)})


def batches():
    step = 0
    while True:
        yield pg.Batch(pg.Rows(step=step, first=0, count=8, total=8), {"image": torch.ones(8, 4)})
        step += 1


def game(*terms, d=None):
    torch.manual_seed(0)
    policy = pg.Policy(kind=torch.optim.SGD, lr=0.1)
    g = pg.Player(side=Side.G, net=Two(), policy=policy)
    d = pg.Player(side=Side.D, net=d or nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)), policy=policy)
    return pg.GAN(
        g=g, d=d, loss=pg.Loss(hinge.d_loss, hinge.g_loss), prior=pg.Prior(seed=0, latent=3), g_penalties=terms
    )


def test_a_term_reaches_what_d_never_sees():
    term = pg.Term(name="square", function=lambda outputs, feed: outputs.extra["other"].square(), weight=2.0)
    gan, plain = game(term), game()
    before = gan.g.net.other.weight.clone()
    z, _ = gan.prior.draw("g", pg.Rows(step=0, first=0, count=8, total=8))
    expected = 2 * gan.g.net.other(z).square().mean().item()
    report = synchronous.step(gan, batches()).read()
    synchronous.step(plain, batches())
    assert report["g/loss/square"] == pytest.approx(expected)
    assert not torch.equal(gan.g.net.other.weight, before)
    assert torch.equal(plain.g.net.other.weight, before)
    assert torch.equal(gan.g.net.image.weight, plain.g.net.image.weight)  # the term only adds


def test_a_term_with_axes_counts_as_its_mean_and_an_interval_as_its_force():
    term = pg.Term(name="pixels", function=lambda outputs, feed: outputs.images.abs(), weight=3.0, interval=2)
    images = torch.randn(4, 2, 5)
    outputs = pg.Outputs(fake=None, images=images)
    part = pg.PenaltyContext(network=None, feed=INPUTS, outputs=outputs, input_gradient=None)
    assert torch.allclose(term(part), 6 * images.abs().mean((1, 2)))


def test_modules_without_labels_are_not_passed_any():
    """`nn.Sequential` takes one argument."""
    assert synchronous.step(game(d=nn.Sequential(nn.Linear(4, 1))), batches()).images == 8


def test_shared_fakes_refuse_what_they_would_lose():
    with pytest.raises(pg.ConfigError, match=r"more than images \(other\); use scheme synchronous"):
        shared_fakes.Scheme().step(game(), batches())


def test_r1_as_a_function_is_the_penalty():
    d = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    values = pg.r1_penalty(d(x).squeeze(1), x)
    jacobian = torch.autograd.functional.jacobian(lambda x: d(x).squeeze(1), x)
    assert torch.allclose(values, torch.stack([jacobian[i, i].square().sum() / 2 for i in range(5)]))
    values.sum().backward()
    assert d[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda outputs, feed: outputs.images.mean(), "a mean over the batch"),
        (lambda outputs, feed: None, "a NoneType"),
        (lambda outputs, feed: outputs.images.mean().reshape(1), r"a tensor of \(1,\) for 4 samples"),
    ],
)
def test_a_term_that_is_no_value_per_sample_is_refused(function, found):
    part = pg.PenaltyContext(
        network=None, feed=INPUTS, outputs=pg.Outputs(fake=None, images=torch.zeros(4, 2)), input_gradient=None
    )
    with pytest.raises(pg.ConfigError, match=f"term mine returned {found}; return one value per sample"):
        pg.Term(name="mine", function=function)(part)


class OtherRows(pg.Penalty):
    """A penalty of a wrong shape."""

    name, side = "mine", Side.G

    def __init__(self, function, needs=frozenset()):
        self.function = function
        self.needs = needs

    def __call__(self, context):
        return self.function(torch.ones(4, 2) if context.outputs.images is None else context.outputs.images)


@pytest.mark.parametrize(("function", "found"), [(lambda images: images.mean().reshape(1), r"\(1,\)")])
def test_a_penalty_that_is_no_value_per_sample_is_refused(function, found):
    with pytest.raises(pg.ConfigError, match=f"loss 'mine' has shape {found} for 8 samples; return one value per s"):
        synchronous.step(game(OtherRows(function)), batches())


def test_a_penalty_of_weights_that_is_no_value_per_sample_is_refused():
    gan = game(OtherRows(lambda images: images.mean(0), frozenset({pg.Capability.WHOLE_WEIGHTS})))
    gan.g.net.forward = gan.g.net.image.forward  # shared images have nothing else
    with pytest.raises(pg.ConfigError, match=r"loss 'mine' has shape \(2,\) for 8 samples"):
        shared_fakes.Scheme().step(gan, batches())


def test_two_losses_of_one_name_are_refused():
    term = pg.Term(name="cycle", function=lambda outputs, feed: outputs.images)
    with pytest.raises(pg.ConfigError, match="g: two losses are called 'cycle'"):
        game(term, term)
    with pytest.raises(pg.ConfigError, match="called 'adversarial'"):
        game(pg.Term(name="adversarial", function=term.function))


def test_penalties_without_a_comma_are_refused():
    plain = game()
    with pytest.raises(pg.ConfigError, match=r"write \(penalty,\)"):
        pg.GAN(
            g=plain.g,
            d=plain.d,
            loss=plain.loss,
            prior=plain.prior,
            g_penalties=pg.Term(name="a", function=lambda outputs, feed: outputs.images),
        )
