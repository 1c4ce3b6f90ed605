"""Losses, penalties and extra players that draw resume bit for bit; those without a gradient are refused."""

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import SETTINGS, D, G, data, weights

EXTRA = pg.Side("extra")


class Interpolated(pg.Penalty):
    """WGAN-GP as people write it, with shares from torch's generator."""

    name = "interpolated"
    side = pg.Side.D
    interval = 1
    weight = 1.0
    needs = frozenset({pg.Capability.DOUBLE_BACKWARD})

    def __call__(self, context):
        real, fake = context.feed.real_sample.detach(), context.outputs.images.detach()
        share = torch.rand(len(real), 1)
        x = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(context.network(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).square()


class Noised(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x + 0.1 * torch.randn_like(x))


class Denoised(pg.Penalty):
    """The loss of an extra player whose forward draws."""

    name = "denoised"
    side = EXTRA
    interval = 1
    weight = 1.0

    def __call__(self, context):
        return (context.network(context.outputs.images) - context.outputs.images.detach()).square().mean(1)


class NoisyInLargeBatches(D):
    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x) if len(x) > 4 else x)


def with_noise(outputs, feed):
    noise = torch.from_numpy(np.random.normal(size=outputs.images.shape)).float()
    return (outputs.images - noise).square()


def smoothed(real, fake):
    return (1 - real * torch.rand_like(real)).relu() + (1 + fake).relu()


DRAWS = {
    "penalty": {"terms": [Interpolated()]},
    "term": {"terms": [pg.Term(name="noise", function=with_noise)]},
    "loss": {"loss": pg.Loss(smoothed, lambda fake, real=None: -fake)},
    "loss of g": {"loss": pg.Loss(pg.hinge_loss.d, lambda fake, real=None: -fake * torch.rand_like(fake))},
    "player": {"terms": [Denoised()], "players": lambda: {"extra": Noised()}},
    "batch": {"d": NoisyInLargeBatches},
}


def run(folder, kimg, *, d=D, players=dict, **arguments):
    torch.manual_seed(0)
    nets, extra = (G(), d()), players()
    torch.seed()  # as in another process
    np.random.seed(None)
    settings = {**SETTINGS, "train.kimg": kimg}
    return pg.Trainer(*nets, data(), players=extra, settings=settings, out=folder, **arguments).run()


@pytest.mark.parametrize("name", DRAWS)
def test_what_draws_in_a_turn_resumes_bit_for_bit(tmp_path, name):
    run(tmp_path / "whole", 0.04, **DRAWS[name])
    run(tmp_path / "parts", 0.02, **DRAWS[name])
    run(tmp_path / "parts", 0.04, **DRAWS[name])
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts") != {}


class OfFrozenWeights(pg.Penalty):
    name = "decay"
    side = pg.Side.G
    interval = 1
    weight = 1.0

    def __call__(self, context):
        frozen = [weight for weight in context.network.module.parameters() if not weight.requires_grad]
        return sum(weight.square().sum() for weight in frozen).expand(context.feed.rows.count)


def detached(outputs, feed):
    return outputs.images.detach().square()


CONSTANTS = {
    "detached": pg.Term(name="size", function=detached),
    "of d": pg.Term(name="size", side=pg.Side.D, function=detached),
    "of the data": pg.Term(name="size", side=pg.Side.D, function=lambda outputs, feed: feed.real_sample.square()),
    "frozen": OfFrozenWeights(),
}


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_term_without_a_gradient_is_refused(tmp_path, name, scheme):
    settings = {**SETTINGS, "scheme.name": scheme, "g.freeze": ["first.*"]}
    term = CONSTANTS[name]
    with pytest.raises(ConfigError, match=f"penalty {term.name} of {term.side.value}: its values have no gradient"):
        pg.Trainer(G(), D(), data(), terms=[term], settings=settings, out=tmp_path).run()
    assert type(term).__call__ in (pg.Term.__call__, OfFrozenWeights.__call__)  # the user's object is unchanged


def test_orthogonal_of_one_row_is_refused(tmp_path):
    """One filter differs from no other: D's last layer has nothing to learn from the term."""
    term = pg.OrthogonalPenalty(pg.OrthogonalOptions(side="d"))
    settings = {**SETTINGS, "d.train": ["last.*"]}
    with pytest.raises(ConfigError, match="penalty orthogonal on d: it reaches no weight that trains"):
        pg.Trainer(G(), D(), data(), terms=[term], settings=settings, out=tmp_path).run()
