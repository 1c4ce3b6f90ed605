"""What every file of the balancers registry keeps."""

import dataclasses

import pytest
import torch

from paragan.core import registry
from paragan.core.balancer import Balancer, TermGradients
from paragan.core.types import Rows

NAMES = registry.names("balancers")
SURE = {"at": "output"}


def made(name):
    kind = registry.options("balancers", name)
    known = {field.name for field in dataclasses.fields(kind)}
    file = registry.load_module("balancers", name)
    balancer = file.Balancer(file.Options(**{key: value for key, value in SURE.items() if key in known}))
    balancer.begin(["adversarial", "l1"])
    return balancer


def gradients(scale=1.0, weight=1.0, parts=1):
    """Of two terms; `weight` is contained in the adversarial one."""
    drawn = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(0)).double()
    adversarial, l1 = drawn * torch.tensor([scale * weight, 1.0]).double()[:, None, None]
    cut = {"adversarial": adversarial.chunk(parts), "l1": l1.chunk(parts)}
    return TermGradients(at_output=cut, rows=Rows(step=0, first=0, count=8, total=8), weights={"adversarial": weight})


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name):
    balancer = made(name)
    assert isinstance(balancer, Balancer) and balancer.name == name and balancer.layer is None


@pytest.mark.parametrize("name", NAMES)
def test_factors_are_finite_positive_scalars_of_terms(name):
    factors = made(name).factors(gradients())
    assert set(factors) <= {"adversarial", "l1"} and factors
    assert all(factor.shape == () and factor > 0 and factor.isfinite() for factor in factors.values())


@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_are_the_whole(name):
    whole, parts = (made(name).factors(gradients(parts=n)) for n in (1, 4))
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_the_adversarial_loss_does_not_matter_but_its_weight_does(name):
    one, large, weighted = (made(name).factors(gradients(**how)) for how in ({}, {"scale": 1e3}, {"weight": 0.5}))
    others = [factors.get("l1", torch.ones(()).double()) for factors in (one, large, weighted)]
    ratios = [factors["adversarial"] / other for factors, other in zip((one, large, weighted), others, strict=True)]
    torch.testing.assert_close(1e3 * ratios[1], ratios[0], rtol=1e-3, atol=0)
    torch.testing.assert_close(ratios[2], ratios[0], rtol=1e-3, atol=0)  # of a gradient that contains the weight


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_without_the_adversarial_loss_changes_no_average_of_it(name):
    balancer = made(name)
    before = {key: value.clone() for key, value in balancer.state.items() if not key.startswith("l1")}
    alone = TermGradients(at_output={"l1": gradients().at_output["l1"]}, rows=Rows(step=0, first=0, count=8, total=8))
    assert "adversarial" not in balancer.factors(alone)
    assert "adversarial" not in balancer.factors(gradients(weight=0.0))
    assert all(torch.equal(balancer.state[key], value) for key, value in before.items())
