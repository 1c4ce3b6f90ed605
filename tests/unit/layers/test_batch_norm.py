"""Batch norm against torch's and against the formula; when its running statistics follow; the conditional form."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state

from paragan.core.errors import DataError
from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm, batch_norm
from paragan.layers.update_once import begin_update, mixes_samples


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3 + 1


def filled(norm: nn.Module) -> nn.Module:
    """Gains and biases that show."""
    for number, parameter in enumerate(norm.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    return norm


@pytest.mark.parametrize("alone", [False, True], ids=["marked", "alone"])
@pytest.mark.parametrize("shape", [(6, 3, 4, 4), (6, 3)])
def test_equals_torch_over_updates_and_in_evaluation(shape, alone):
    """alone: without `begin_update`, every forward in training mode moves the running statistics."""
    ours = filled(AffineBatchNorm(3).double())
    torchs = (nn.BatchNorm2d(3) if len(shape) == 4 else nn.BatchNorm1d(3)).double()
    torchs.weight.data, torchs.bias.data = ours.gain.data.clone(), ours.bias.data.clone()
    for seed in range(3):
        if not alone:
            begin_update(ours)
        torch.testing.assert_close(
            ours(images(*shape, seed=seed)), torchs(images(*shape, seed=seed)), rtol=1e-12, atol=1e-13
        )
    torch.testing.assert_close(ours.norm.mean, torchs.running_mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.norm.var, torchs.running_var, rtol=1e-12, atol=0)
    x = images(*shape, seed=9)
    torch.testing.assert_close(ours.eval()(x), torchs.eval()(x), rtol=1e-12, atol=1e-13)


def test_running_statistics_follow_once_per_update():
    norm, x = BatchNorm(3).double(), images(6, 3, 4, 4)
    begin_update(norm)
    norm(x), norm(x)
    torch.testing.assert_close(norm.mean, 0.1 * x.mean((0, 2, 3)), rtol=1e-12, atol=0)
    begin_update(norm.eval())
    norm(x)
    torch.testing.assert_close(norm.mean, 0.1 * x.mean((0, 2, 3)), rtol=1e-12, atol=0)


def test_a_batch_that_is_not_finite_does_not_poison_them():
    norm, x = BatchNorm(2).double(), images(4, 2)
    x[0, 1] = float("inf")
    begin_update(norm)
    norm(x)
    assert norm.mean[0] != 0 and norm.mean[1] == 0 and norm.var[1] == 1


def test_an_update_between_forward_and_backward():
    norm, x = filled(AffineBatchNorm(3).double()), images(6, 3, 4, 4).requires_grad_()
    begin_update(norm)
    first = norm(x).sin().sum()
    begin_update(norm)
    norm(images(6, 3, 4, 4, seed=1))
    (grad,) = torch.autograd.grad(first, x)
    (fresh,) = torch.autograd.grad(norm(x).sin().sum(), x)
    assert torch.equal(grad, fresh)


@pytest.mark.parametrize("classes", [0, 2])
def test_second_derivatives(classes):
    norm, y = filled(batch_norm(2, classes).double()), torch.tensor([0, 1, 1])
    names = [n for n, _ in norm.named_parameters()]

    def f(x, *parameters):
        return functional_call(norm, dict(zip(names, parameters, strict=True)), (x, y)).sin()

    x = images(3, 2, 2, 1).requires_grad_()
    assert torch.autograd.gradgradcheck(f, (x, *norm.parameters()))


@pytest.mark.parametrize("classes", [0, 2])
def test_statistics_stay_float32_under_autocast(classes):
    """A mean of 50 with a deviation of 1: bf16 statistics would be off by tenths."""
    x = (images(64, 2, 16, 16) / 3 + 50).bfloat16()
    norm = batch_norm(2, classes)
    begin_update(norm)
    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x, torch.zeros(64, dtype=torch.int64))
    wide = x.double()
    expected = (wide - wide.mean((0, 2, 3), keepdim=True)) / wide.std((0, 2, 3), keepdim=True)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(norm.norm.mean.double(), 0.1 * wide.mean((0, 2, 3)), rtol=1e-5, atol=0)


def test_conditional_is_the_formula_and_starts_as_identity():
    norm, x, y = ConditionalBatchNorm(3, 4).double(), images(5, 3, 2, 2), torch.tensor([3, 0, 3, 1, 2])
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    plain = (x - mean) / (var + 1e-5).sqrt()
    torch.testing.assert_close(norm(x, y), plain, rtol=1e-10, atol=1e-12)
    filled(norm)
    by_hand = torch.stack(
        [plain[i] * norm.gain[k][:, None, None] + norm.bias[k][:, None, None] for i, k in enumerate(y)]
    )
    torch.testing.assert_close(norm(x, y), by_hand, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("labels", "found"),
    [(None, r"required.*\(5,\)"), (torch.zeros(4, dtype=torch.int64), r"\(4,\)"), (torch.zeros(5), "float32")],
)
def test_labels_that_do_not_fit_are_refused(labels, found):
    with pytest.raises(DataError, match=f"labels .*{found}"):
        ConditionalBatchNorm(3, 4)(torch.zeros(5, 3, 2, 2), labels)


def test_stacked_norms_follow_each_alone():
    norms, x = [filled(AffineBatchNorm(3).double()) for _ in range(2)], images(2, 4, 3, 2, 2)
    parameters, buffers = stack_module_state(norms)
    template = copy.deepcopy(norms[0])
    begin_update(template)
    out = torch.vmap(lambda p, b, x: functional_call(template, (p, b), (x,)))(parameters, buffers, x)
    for i, norm in enumerate(norms):
        begin_update(norm)
        torch.testing.assert_close(out[i], norm(x[i]), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(buffers["norm.var"][i], norm.norm.var, rtol=1e-12, atol=0)


def test_networks_that_mix_samples_are_recognised():
    assert mixes_samples(nn.Sequential(batch_norm(2))) and mixes_samples(nn.Sequential(batch_norm(2, 3)))
    assert mixes_samples(nn.Sequential(nn.BatchNorm2d(2)))
    assert not mixes_samples(nn.Sequential(nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2)))
