"""The fused step of channels-last weights, whose gradients are told to it in the order of memory."""

import copy

import pytest
import torch

from paragan.game import optimizer_calls
from paragan.game.optimizer_calls import step_if

OK = torch.tensor(True)


def conv() -> torch.nn.Conv2d:
    torch.manual_seed(0)
    return torch.nn.Conv2d(3, 5, 3).double().to(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_it_is_the_plain_step(kind):
    fused, plain = conv(), conv()
    by_name, renamed = kind(plain.parameters(), 0.1), kind(fused.parameters(), 0.1, fused=True)
    assert optimizer_calls.runs_in_memory_order(kind)
    for step in range(3):
        x = torch.randn(2, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        for net, optimizer in ((fused, renamed), (plain, by_name)):
            net(x.to(memory_format=torch.channels_last)).sin().sum().backward()
            assert not net.weight.grad.is_contiguous()
            step_if(OK, optimizer)
            optimizer.zero_grad()
    torch.testing.assert_close(fused.weight, plain.weight, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(fused.weight, conv().weight)


def test_a_torch_that_reads_by_name_is_left_alone(monkeypatch):
    """Then a gradient in the order of memory would step other weights than its own."""
    monkeypatch.setattr(optimizer_calls, "runs_in_memory_order", lambda kind: False)
    net = conv()
    net(torch.randn(1, 3, 6, 6, dtype=torch.float64)).sum().backward()
    before = copy.copy(net.weight.grad)
    step_if(OK, torch.optim.Adam(net.parameters(), 0.1, fused=True))
    assert net.weight.grad.stride() == before.stride() and torch.equal(net.weight.grad, before)
