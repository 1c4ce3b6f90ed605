"""What every file of the optimisers' shelf keeps, and each against the plainest form of its paper."""

import math
import re

import pytest
import torch

from paragan.core import registry
from paragan.game.optimizer_calls import step_if
from paragan.game.options import ScheduleOptions
from paragan.game.policy import Policy, set_lr
from tests.laws.test_no_sync import HostReads

NAMES = registry.names("optim")
STEPS = 6


def weights(dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = ((3, 4), (5,), ())
    return [torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype).requires_grad_() for shape in shapes]


def give(held, number, factor=1.0):
    for weight, grad in zip(held, weights(seed=100 + number), strict=True):
        weight.grad = (grad.detach() * factor).to(weight.dtype)


def furthest(some, others):
    return max(float((a - b).detach().abs().max()) for a, b in zip(some, others, strict=True))


def bits(optimizer):
    return [v.clone() for entry in optimizer.state_dict()["state"].values() for v in entry.values()]


def adabelief(w, g, s, t, lr, betas, eps):
    s["m"] = betas[0] * s.get("m", 0 * g) + (1 - betas[0]) * g
    s["s"] = betas[1] * s.get("s", 0 * g) + (1 - betas[1]) * (g - s["m"]) ** 2 + eps
    return w - lr * (s["m"] / (1 - betas[0] ** t)) / ((s["s"] / (1 - betas[1] ** t)).sqrt() + eps)


def adam(g, s, t, betas, eps):
    s["m"] = betas[0] * s.get("m", 0 * g) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0 * g) + (1 - betas[1]) * g**2
    return (s["m"] / (1 - betas[0] ** t)) / ((s["v"] / (1 - betas[1] ** t)).sqrt() + eps)


def optimistic_adam(w, g, s, t, lr, betas, eps):
    before = s.get("last", 0 * g)
    s["last"] = adam(g, s, t, betas, eps)
    return w - 2 * lr * s["last"] + lr * before


def lamb(w, g, s, t, lr, betas, eps, weight_decay, longest):
    direction = adam(g, s, t, betas, eps) + weight_decay * w
    length, stride = math.sqrt(float((w**2).sum())), math.sqrt(float((direction**2).sum()))
    ratio = min(length, longest) / stride if length and stride else 1.0
    return w - lr * ratio * direction


PLAIN = {
    "adabelief": (adabelief, {"lr": 0.03, "betas": (0.5, 0.9), "eps": 1e-3}),
    "optimistic_adam": (optimistic_adam, {"lr": 0.03, "betas": (0.5, 0.9), "eps": 1e-3}),
    "lamb": (lamb, {"lr": 0.03, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "longest": 2.0}),
}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_its_paper(name):
    plain, how = PLAIN[name]
    held = weights()
    expected = [weight.detach().clone() for weight in held]
    memory = [{} for _ in held]
    optimizer = registry.load_module("optim", name).Optimizer(held, **how)
    for number in range(STEPS):
        give(held, number)
        optimizer.step()
        expected = [
            plain(w, weight.grad, s, number + 1, **how) for w, weight, s in zip(expected, held, memory, strict=True)
        ]
    assert furthest(held, expected) <= 1e-14
    assert furthest(held, weights()) > 0.01


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("skipped", [0, 2], ids=["the first", "a later one"])
def test_a_skipped_step_leaves_no_trace(name, skipped):
    ends = []
    for broken in (True, False):
        held = weights(torch.float32)
        optimizer = registry.load_module("optim", name).Optimizer(held, eps=1e-3)
        for number in range(4):
            if broken and number == skipped:
                give(held, number, float("nan"))
                step_if(torch.tensor(False), optimizer)
            give(held, number)
            step_if(torch.tensor(True), optimizer)
        ends.append([*held, *bits(optimizer)])
    assert all(a.equal(b) for a, b in zip(*ends, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_step_without_host_synchronization(name):
    """Also where the learning rate follows a schedule. Python's parser reads some 0-dim tensors, as by `item`."""
    policy = Policy(
        kind=registry.load_module("optim", name).Optimizer,
        lr=0.1,
        schedule=ScheduleOptions(name="linear", start=0, end=8),
    )
    held = weights()
    optimizer = policy.optimizer((str(number), weight) for number, weight in enumerate(held))
    count = torch.tensor(0)
    with HostReads() as reads:
        for number in range(2):
            set_lr(optimizer, policy, count + number)
            give(held, number)
            step_if(torch.tensor(True), optimizer)
    assert not reads.seen
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1 * 7 / 8)


@pytest.mark.parametrize("name", NAMES)
def test_stopping_is_invisible(name):
    straight, stopped = weights(), weights()
    kind = registry.load_module("optim", name).Optimizer
    optimizers = [kind(straight), kind(stopped)]
    for number in range(4):
        if number == 2:
            again = kind(stopped)
            again.load_state_dict(optimizers[1].state_dict())
            optimizers[1] = again
        for held, optimizer in zip((straight, stopped), optimizers, strict=True):
            give(held, number)
            optimizer.step()
    assert all(a.equal(b) for a, b in zip(straight, stopped, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_without_a_gradient_stays_and_has_no_state(name):
    held = weights()
    optimizer = registry.load_module("optim", name).Optimizer(held)
    give(held, 0)
    held[1].grad = None
    optimizer.step()
    assert held[1].equal(weights()[1]) and not held[0].equal(weights()[0])
    assert held[1] not in optimizer.state or not optimizer.state[held[1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"betas": (0.5, 1.0)}, "betas must be at least 0 and below 1, not [0.5, 1.0]"),
        ({"eps": -1}, "eps must be at least 0 and below 1, not -1"),
        ({"lr": -1.0}, "lr must be at least 0 and finite, not -1.0"),
    ],
)
def test_what_it_does_not_take(name, wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        registry.load_module("optim", name).Optimizer(weights(), **wrong)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", NAMES)
def test_complex_weights_are_pairs_of_real_ones(name, dtype):
    draw = torch.Generator().manual_seed(0)
    kind = registry.load_module("optim", name).Optimizer
    whole = torch.randn(4, 3, dtype=dtype, generator=draw).requires_grad_()
    pairs = torch.view_as_real(whole.detach().clone()).requires_grad_()
    optimizers = kind([whole], lr=0.1), kind([pairs], lr=0.1)
    for _ in range(STEPS):
        whole.grad = torch.randn(4, 3, dtype=dtype, generator=draw)
        pairs.grad = torch.view_as_real(whole.grad.clone())
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(torch.view_as_real(whole.detach()), pairs.detach())
