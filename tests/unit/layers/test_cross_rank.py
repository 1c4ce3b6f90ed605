"""What conversion keeps and refuses; the norm's derivatives on the only rank of a group. More: tests/distributed."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.layers.all_reduce import ReduceGroup
from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.cross_rank import CrossRankBatchNorm, convert
from paragan.layers.update_once import begin_update, mixes_samples

TWO = World(rank=0, size=2, group=object())  # conversion to all ranks talks to nobody
FOUR = World(rank=0, size=4, group=object())


class Twice(nn.Module):
    """One norm in two places, and torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.label = AffineBatchNorm(3), ConditionalBatchNorm(3, 2)
        self.again = self.first
        self.own = nn.Sequential(nn.BatchNorm2d(3, eps=0.1, momentum=None), nn.InstanceNorm2d(3), nn.BatchNorm1d(3))


class _Strange(nn.BatchNorm2d):
    pass


@pytest.fixture
def only_rank(monkeypatch):
    """Sums over a group of one rank, without a group."""
    monkeypatch.setattr(ReduceGroup, "all_reduce_", lambda self, values: values)


@pytest.fixture
def nobody(monkeypatch):
    """A group that must not be asked."""
    monkeypatch.delattr(ReduceGroup, "all_reduce_")


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 1


def filled(norm: nn.Module) -> nn.Module:
    """Gains and biases that show."""
    for number, parameter in enumerate(norm.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    return norm


def test_conversion_keeps_the_modules_and_all_they_hold():
    net = Twice().to(torch.float64)
    before, modules = dict(net.state_dict(keep_vars=True)), list(net.modules())
    convert(net, TWO, None)
    after = net.state_dict(keep_vars=True)
    assert list(after) == list(before) and all(after[name] is tensor for name, tensor in before.items())
    assert all(a is b for a, b in zip(net.modules(), modules, strict=True)) and net.again is net.first
    assert type(net.first.norm) is type(net.label.norm) is CrossRankBatchNorm
    assert isinstance(net.own[0], nn.BatchNorm2d) and type(net.own[0]) is not nn.BatchNorm2d
    assert (net.own[0].eps, net.own[0].momentum) == (0.1, None) and type(net.own[1]) is nn.InstanceNorm2d
    assert [net.get_submodule(n).reduce_group.name for n in ("first.norm", "own.2")] == ["first.norm", "own.2"]


def test_converted_norms_still_mix_samples_and_are_armed():
    for norm in (BatchNorm(2), nn.BatchNorm2d(2)):
        convert(norm, TWO, None)
        assert mixes_samples(norm)
    net = AffineBatchNorm(2)
    convert(net, TWO, None)
    begin_update(net)
    assert net.norm.update_due


@pytest.mark.parametrize("ranks", [None, 1])
def test_conversion_can_be_done_again(ranks):
    net = Twice()
    convert(net, TWO, None)
    convert(net, TWO, ranks)
    assert (net.first.norm.reduce_group is None) == (ranks == 1) == (net.first.norm.average_group is not None)


@pytest.mark.parametrize(
    ("norm", "told"),
    [
        (nn.SyncBatchNorm(3), r"1: nn.SyncBatchNorm has no second derivative .*; use nn.BatchNorm1d"),
        (_Strange(3), r"1: the statistics of the custom batch norm _Strange cannot span ranks; use"),
        (nn.LazyBatchNorm2d(), r"1: the statistics of the custom batch norm LazyBatchNorm2d"),
    ],
)
def test_norms_that_cannot_be_converted_are_refused_before_any_is(norm, told):
    net = nn.Sequential(BatchNorm(3), norm)
    with pytest.raises(ConfigError, match=told):
        convert(net, TWO, None)
    assert type(net[0]) is BatchNorm


@pytest.mark.parametrize("ranks", [0, 3, 8])
def test_groups_that_do_not_divide_the_ranks_are_refused(ranks):
    with pytest.raises(ConfigError, match=f"norm_ranks={ranks} does not divide 4 ranks; pass a divisor"):
        convert(BatchNorm(3), FOUR, ranks)


@pytest.mark.parametrize("kind", [AffineBatchNorm, BatchNorm, nn.BatchNorm2d])
@pytest.mark.usefixtures("only_rank")
def test_first_and_second_derivatives(kind):
    """gradcheck takes first derivatives by the fused rule and compares those of the second with the plain one's."""
    norm = filled(kind(2).double())
    convert(norm, TWO, None)
    names = [name for name, _ in norm.named_parameters()]

    def f(x, *parameters):
        return functional_call(norm, dict(zip(names, parameters, strict=True)), (x,)).sin()

    inputs = (images(3, 2, 2, 1).requires_grad_(), *norm.parameters())
    assert torch.autograd.gradcheck(f, inputs) and torch.autograd.gradgradcheck(f, inputs)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.usefixtures("only_rank")
def test_both_rules_of_first_derivatives_agree(layout):
    norm, x = filled(AffineBatchNorm(3).double()), images(4, 3, 5, 2).to(memory_format=layout).requires_grad_()
    convert(norm, TWO, None)
    loss = (norm(x).sin() * images(4, 3, 5, 2)).sum()
    wanted = (x, *norm.parameters())
    fused = torch.autograd.grad(loss, wanted, retain_graph=True)
    plain = torch.autograd.grad(loss, wanted, create_graph=True)
    for a, b in zip(fused, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("only_rank")
def test_frozen_weights_and_inputs_without_a_gradient():
    norm, x = filled(AffineBatchNorm(3).double()), images(4, 3, 5, 2)
    convert(norm, TWO, None)
    norm(x).sin().sum().backward()
    whole = filled(AffineBatchNorm(3).double())
    whole(x).sin().sum().backward()
    torch.testing.assert_close(norm.gain.grad, whole.gain.grad, rtol=1e-12, atol=1e-13)
    norm.requires_grad_(False)
    norm(x.requires_grad_()).sin().sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(whole(x).sin().sum(), x)[0], rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("nobody")
def test_evaluation_needs_no_communication():
    for net in (AffineBatchNorm(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3, track_running_stats=False)):
        alone = copy.deepcopy(net.double().eval())
        convert(net, TWO, None)
        assert torch.equal(net(images(4, 3, 2, 2)), alone(images(4, 3, 2, 2)))
