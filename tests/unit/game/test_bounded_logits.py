"""A D whose last operation bounds its logits is noticed, however that is written; others are not."""

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg
from paragan.core.outputs import DiscriminatorOutput
from paragan.game.bounded_logits import bounded_ranges, notice_bounded_logits, notice_steep_logits
from paragan.layers.spectral_norm import spectral_norm

INPUTS = torch.linspace(-1, 1, 8).view(4, 2)


class Ends(nn.Module):
    """A small D with a function after its last layer."""

    def __init__(self, function, net=None):
        super().__init__()
        self.net = net or nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.function = function

    def forward(self, x):
        return self.function(self.net(x))


class Product(nn.Module):
    """Two layers side by side, of which one bounds its values: `join` of both."""

    def __init__(self, join):
        super().__init__()
        self.values = nn.Linear(2, 5)
        self.gates = nn.Linear(2, 5)
        self.join = join

    def forward(self, x):
        return self.join(self.values(x), self.gates(x))


class Vector(nn.Module):
    """A weight without a layer."""

    def __init__(self, function=lambda y: y):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 2), 0.01))
        self.function = function

    def forward(self, x):
        return self.function(F.linear(x, self.weight))


def spectral(function):
    layers = (pg.spectral_norm(nn.Linear(2, 8)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 1)))
    return Ends(function, nn.Sequential(*layers))


def from_zero(function):
    d = Ends(function)
    for weight in d.net[2].parameters():
        nn.init.zeros_(weight)
    return d


def patches(function):
    """A convolution with the mean over 256 patches."""
    net = nn.Sequential(nn.Unflatten(1, (2, 1, 1)), nn.Upsample(scale_factor=16), nn.Conv2d(2, 1, 3, padding=1))
    return Ends(lambda y: function(y).mean((1, 2, 3)), net)


def range_of(d):
    return bounded_ranges(d, lambda: DiscriminatorOutput.of(d(INPUTS)))


BOUNDED = {
    "sigmoid": Ends(torch.sigmoid),
    "tanh": Ends(torch.tanh),
    "clamp": Ends(lambda y: y.clamp(-2, 2)),
    "hardtanh": Ends(nn.Hardtanh()),
    "relu6": Ends(nn.ReLU6()),
    "softmax": Ends(lambda y: torch.cat([y, -y], 1).softmax(1)[:, :1]),
    "softsign": Ends(nn.Softsign()),
    "arcus": Ends(torch.atan),
    "minimum": Ends(lambda y: torch.minimum(torch.maximum(y, -torch.ones(1)), torch.ones(1))),
    "by hand": Ends(lambda y: y / (1 + y.square()).sqrt()),
    "scaled": Ends(lambda y: 2 * y.sigmoid() - 1),
    "patches": patches(torch.sigmoid),
    "dropped": Ends(lambda y: F.dropout(y, 0.5).tanh()),
    "spectral norm": spectral(torch.tanh),
    "from 0": from_zero(torch.tanh),
    "vector": Vector(torch.sigmoid),
    "hidden": Ends(torch.tanh, nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 1))),
}
UNBOUNDED = {
    "plain": Ends(lambda y: y),
    "from 0": from_zero(lambda y: y),
    "spectral norm": spectral(lambda y: y),
    "vector": Vector(),
    "hidden tanh": Ends(lambda y: y, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))),
    "batch norm": Ends(nn.BatchNorm1d(1)),
    "batch norm without weights": Ends(nn.BatchNorm1d(1, affine=False)),
    "patches": patches(lambda y: F.leaky_relu(y, 0.2)),
    "soft cap": Ends(lambda y: 30 * torch.tanh(y / 30)),
    "wide clamp": Ends(lambda y: y.clamp(-10, 10)),
    "elu of two": Product(lambda values, gates: (F.elu(values) - F.elu(gates)).sum(1)),
    "dropout": Ends(nn.Dropout()),
    "gates": Product(lambda values, gates: values * gates.sigmoid()),
    "attention": Product(lambda values, gates: (values * gates.softmax(1)).sum(1)),
    "residual": Ends(lambda y: y + y.sigmoid()),
    "recurrent": Ends(lambda y: y[0][:, 0], nn.Sequential(nn.Unflatten(1, (1, 2)), nn.LSTM(2, 1, batch_first=True))),
}


ONE_SIDED = {
    "relu": (Ends(torch.relu), (0, math.inf)),
    "relu of patches": (patches(torch.relu), (0, math.inf)),
    "softplus": (Ends(nn.Softplus()), (0, math.inf)),
    "clamp": (Ends(lambda y: y.clamp(min=-1)), (-1, math.inf)),
    "elu": (Ends(nn.ELU(2.0)), (-2, math.inf)),
    "log-sigmoid": (Ends(nn.LogSigmoid()), (-math.inf, 0)),
    "minus relu": (spectral(lambda y: 1 - y.relu()), (-math.inf, 1)),
    "minimum": (Ends(lambda y: torch.minimum(y, torch.ones(()))), (-math.inf, 1)),
}
SCALED = {
    "sigmoid": (Ends(lambda y: 10 * y.sigmoid()), (0, 10)),
    "minus sigmoid": (Ends(lambda y: -5 * y.sigmoid() - 2), (-7, -2)),
    "tanh": (Ends(lambda y: 6 * y.tanh() + 3), (-3, 9)),
    "relu6": (Ends(lambda y: 2 * F.relu6(y)), (0, 12)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_logits_are_noticed(name):
    torch.manual_seed(0)  # dropout that leaves nothing of the few logits says nothing about their range
    ((low, high),) = range_of(BOUNDED[name]).values()
    assert -2 <= low < high <= 6


@pytest.mark.parametrize(("d", "expected"), [*ONE_SIDED.values(), *SCALED.values()], ids=[*ONE_SIDED, *SCALED])
def test_logits_that_are_bounded_on_one_side_or_at_another_scale_are_noticed(d, expected):
    (bounds,) = range_of(d).values()
    assert bounds == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded_logits_are_not_noticed(name, seed):
    d = copy.deepcopy(UNBOUNDED[name])
    torch.manual_seed(seed)
    for layer in d.modules():
        if seed and hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    assert range_of(d) == {}


def notices(d, loss):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notice_bounded_logits(d, (INPUTS,), lambda name: "D", loss)
    return [str(warning.message) for warning in caught]


LOSSES = {
    "hinge": pg.hinge_loss,
    "relativistic": pg.relativistic_loss,
    "least squares": pg.least_squares_loss,
    "wasserstein": pg.wasserstein_loss,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("function", [torch.relu, torch.sigmoid, nn.LogSigmoid(), lambda y: 10 * y.sigmoid()])
def test_every_loss_of_logits_has_the_notice(function, loss):
    (line,) = notices(Ends(function), LOSSES[loss])
    assert "the losses take logits, any real numbers" in line


@pytest.mark.parametrize(
    ("loss", "number"), [("hinge", 0), ("relativistic", 0), ("least squares", 0), ("wasserstein", 1)]
)
def test_bounds_that_a_loss_does_not_reach_matter_to_wasserstein_alone(loss, number):
    for function in (lambda y: 10 * y.tanh(), lambda y: y.clamp(-6, 18)):
        assert len(notices(Ends(function), LOSSES[loss])) == number
    assert notices(Ends(lambda y: 30 * torch.tanh(y / 30)), LOSSES[loss]) == []


def cross_entropy(real, fake):
    ones, zeros = torch.ones_like(real), torch.zeros_like(fake)
    return F.binary_cross_entropy(real, ones, reduction="none") + F.binary_cross_entropy(fake, zeros, reduction="none")


PROBABILITIES = {
    "cross entropy": cross_entropy,
    "logarithm": lambda real, fake: -real.log() - (1 - fake).log(),
    "logarithm of a clamp": lambda real, fake: -real.clamp(1e-6, 1).log() - (1 - fake).clamp(1e-6, 1).log(),
    "margin of energies": lambda real, fake: real + (1 - fake).relu(),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_losses_of_probabilities_and_energies_have_no_notice(name):
    loss = pg.Loss(PROBABILITIES[name], lambda fake, real=None: -fake)
    for function in (torch.sigmoid, torch.relu, nn.Softplus()):
        assert notices(Ends(function), loss) == []


def test_one_of_several_discriminators_is_named():
    d = pg.Discriminators(first=Ends(lambda y: y), second=Ends(torch.tanh), third=Ends(lambda y: y))
    with pytest.warns(UserWarning, match="^D second ends in a tanh or clamp, .* from -1 to 1 for any weights"):
        notice_bounded_logits(d, (INPUTS,), lambda name: f"D {name}")


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_network_that_refuses_large_values_is_not_noticed():
    def refuse(y):
        assert y.abs().max() < 100
        return y.tanh()

    d = Ends(refuse)
    notice_bounded_logits(d, (INPUTS,), str)
    assert d(INPUTS).abs().max() <= 1


@pytest.mark.parametrize("earlier", range(8))
def test_products_that_few_draws_move_to_one_side_are_not_noticed(earlier):
    """The draws depend on the number of a layer's first weight; of one sample there are few."""
    d = Product(lambda values, gates: (values * gates.sigmoid()).sum(1))
    values, gates = d.values, d.gates
    del d.values, d.gates
    d.earlier = nn.ParameterList([torch.zeros(1)] * earlier)
    d.values, d.gates = values, gates
    assert bounded_ranges(d, lambda: DiscriminatorOutput.of(d(INPUTS[:1]))) == {}


def steep(d, loss):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notice_steep_logits(d, (INPUTS,), "D(x)", loss)
    return len(caught)


def layers_of_d(norm=lambda layer: layer):
    width = INPUTS.shape[1]
    return nn.Sequential(norm(nn.Linear(width, 8)), nn.LeakyReLU(0.2), norm(nn.Linear(8, 1)), nn.Flatten(0))


@pytest.mark.parametrize("loss", LOSSES)
def test_only_wasserstein_warns_of_a_d_whose_slopes_nothing_limits(loss):
    assert steep(layers_of_d(), LOSSES[loss]) == (loss == "wasserstein")


@pytest.mark.parametrize("norm", [spectral_norm, nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm_in_all_layers_limits_the_slopes(norm):
    assert steep(layers_of_d(norm), pg.wasserstein_loss) == 0


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, lambda x: nn.Sequential(x, nn.LayerNorm(8))])
def test_other_norms_limit_no_slopes(norm):
    d = nn.Sequential(norm(nn.Linear(INPUTS.shape[1], 8)), nn.Linear(8, 1), nn.Flatten(0))
    assert steep(d, pg.wasserstein_loss) == 1
