"""Spectral norm against plain linear algebra in float64, and when it advances."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state

from paragan.layers.spectral_norm import SpectralNorm, spectral_norm
from paragan.layers.update_once import begin_update, hold_updates, release_updates


def layer(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return spectral_norm(nn.Linear(5, 4).double())


def vectors(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    norm = module.parametrizations.weight[0]
    return norm.u.clone(), norm.v.clone()


def advance(module: nn.Module, x: torch.Tensor, times: int = 1) -> torch.Tensor:
    for _ in range(times):
        begin_update(module)
        y = module(x)
    return y


@pytest.mark.parametrize(
    ("make", "x", "rows"),
    [
        (lambda: nn.Linear(5, 4), torch.zeros(1, 5), 0),
        (lambda: nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 4, 4), 0),
        (lambda: nn.ConvTranspose2d(3, 4, 4), torch.zeros(1, 3, 4, 4), 1),
        (lambda: nn.Embedding(6, 4), torch.zeros(1, dtype=torch.int64), 0),
    ],
)
def test_after_many_updates_the_norm_is_one(make, x, rows):
    torch.manual_seed(0)
    module = spectral_norm(make().double())
    advance(module, x.double() if x.is_floating_point() else x, times=300)
    raw = module.parametrizations.weight.original.detach()
    sigma = torch.linalg.svdvals(raw.transpose(0, rows).flatten(1))[0]
    torch.testing.assert_close(module.weight.detach(), raw / sigma, rtol=1e-9, atol=0)


def test_value_and_gradient_are_the_papers():
    """Miyato et al. 2018, equations 8 and 12: dL/dW = (G - <G, W/sigma> u v^T) / sigma."""
    module, x = layer().eval(), torch.randn(3, 5, dtype=torch.float64)
    w = module.parametrizations.weight.original
    u, v = vectors(module)
    sigma = u @ w.detach() @ v
    module(x).sin().sum().backward()
    normed = (w.detach() / sigma).requires_grad_()
    (x @ normed.T + module.bias.detach()).sin().sum().backward()
    by_hand = (normed.grad - (normed.grad * normed.detach()).sum() * torch.outer(u, v)) / sigma
    torch.testing.assert_close(w.grad, by_hand, rtol=1e-12, atol=1e-14)


def test_one_power_iteration_per_update_in_training_only():
    module, x = layer(), torch.ones(2, 5, dtype=torch.float64)
    with torch.no_grad():
        module.parametrizations.weight.original.normal_()  # else the warm-up has converged
    w, (u, _) = module.parametrizations.weight.original.detach(), vectors(module)
    begin_update(module)
    module(x), module(x)
    new_v = nn.functional.normalize(w.T @ u, dim=0)
    new_u = nn.functional.normalize(w @ new_v, dim=0)
    assert torch.equal(vectors(module)[0], new_u) and torch.equal(vectors(module)[1], new_v)
    module.eval()
    advance(module, x)
    assert torch.equal(vectors(module)[0], new_u)


def test_two_updates_before_one_backward():
    """The vectors of the first graph must survive the in-place update of the second."""
    module, x = layer(), torch.randn(2, 5, dtype=torch.float64)
    twin = copy.deepcopy(module)
    first = advance(module, x)
    advance(module, x)
    first.sum().backward()
    advance(twin, x).sum().backward()
    assert torch.equal(*(m.parametrizations.weight.original.grad for m in (module, twin)))


def test_stacked_networks_advance_each_alone():
    """vmap over stacked parameters and buffers writes the batched buffers in place."""
    nets, x = [nn.Sequential(layer(seed)) for seed in (0, 1)], torch.randn(2, 3, 5, dtype=torch.float64)
    for net in nets:
        nn.init.normal_(net[0].parametrizations.weight.original)
    parameters, buffers = stack_module_state(nets)
    template = copy.deepcopy(nets[0])
    begin_update(template)
    out = torch.vmap(lambda p, b, x: functional_call(template, (p, b), (x,)))(parameters, buffers, x)
    for i, net in enumerate(nets):
        before = vectors(net[0])[0]
        torch.testing.assert_close(out[i], advance(net, x[i]), rtol=1e-12, atol=1e-14)
        u = vectors(net[0])[0]
        assert (u - before).abs().max() > 1e-3
        torch.testing.assert_close(buffers["0.parametrizations.weight.0.u"][i], u, rtol=1e-12, atol=1e-14)


def test_autocast_does_not_reach_it(monkeypatch):
    torch.manual_seed(0)
    seen, matrix = [], SpectralNorm._matrix
    record = lambda self, w: (seen.append(torch.is_autocast_enabled("cpu")), matrix(self, w))[1]  # noqa: E731
    monkeypatch.setattr(SpectralNorm, "_matrix", record)  # a CPU's autocast leaves `mv` alone, a GPU's does not
    module = spectral_norm(nn.Conv2d(3, 8, 3))
    twin, x = copy.deepcopy(module), torch.randn(1, 3, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert advance(module, x).dtype == torch.bfloat16
        weight = module.weight
    assert not any(seen)
    advance(twin, x)
    assert weight.dtype == torch.float32
    assert torch.equal(weight, twin.weight)
    assert torch.equal(vectors(module)[0], vectors(twin)[0])


def test_a_half_precision_weight_is_normalised_in_float32():
    torch.manual_seed(0)
    module = spectral_norm(nn.Linear(64, 32, dtype=torch.bfloat16))
    raw = module.parametrizations.weight.original.detach()
    advance(module, torch.zeros(1, 64, dtype=torch.bfloat16), times=100)
    assert module.weight.dtype == torch.bfloat16 and vectors(module)[0].dtype == torch.float32
    sigma = torch.linalg.svdvals(raw.float())[0]
    torch.testing.assert_close(module.weight, (raw.float() / sigma).bfloat16(), rtol=4e-3, atol=0)


def test_second_derivatives():
    module = layer().eval()
    names = [n for n, _ in module.named_parameters()]

    def f(x, *parameters):
        return functional_call(module, dict(zip(names, parameters, strict=True)), (x,)).sin()

    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(f, (x, *module.parameters()))


def test_copies_and_state_are_complete():
    module, x = layer(), torch.randn(2, 5, dtype=torch.float64)
    advance(module, x)
    twin, other = copy.deepcopy(module), layer(1)
    other.load_state_dict(module.state_dict())
    for same in (twin, other):
        assert torch.equal(advance(same, x), advance(copy.deepcopy(module), x))
    u = vectors(module)[0]
    advance(twin, x)
    assert torch.equal(vectors(module)[0], u)


def test_assignment_stores_the_value_itself():
    module = layer()
    module.weight = torch.full((4, 5), 3.0, dtype=torch.float64)
    assert torch.equal(module.parametrizations.weight.original, torch.full((4, 5), 3.0, dtype=torch.float64))


def test_building_one_leaves_the_global_generator_alone():
    linear = nn.Linear(3, 3)
    before = torch.get_rng_state()
    spectral_norm(linear)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("norm", [spectral_norm, nn.utils.parametrizations.spectral_norm], ids=["ours", "torch"])
def test_alone_it_follows_the_weight_as_torchs_does(norm):
    """Without `begin_update`: one power iteration for every forward in training mode (review: norms 2.0, 3.6)."""
    torch.manual_seed(0)
    net = nn.Sequential(norm(nn.Linear(8, 32)), nn.LeakyReLU(0.2), norm(nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        net(torch.randn(16, 8) + 1).sub(net(torch.randn(16, 8))).mean().neg().backward()
        optimizer.step()
    norms = [torch.linalg.matrix_norm(net.eval()[i].weight.detach(), 2) for i in (0, 2)]
    assert norms == pytest.approx([1, 1], abs=0.05)


LAYERS = {
    "prelu": (lambda: nn.PReLU(4), "weight", [(2, 4)]),
    "layer norm": (lambda: nn.LayerNorm(4), "weight", [(2, 4)]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), "weight", [(2, 3), (2, 4)]),
    "attention": (lambda: nn.MultiheadAttention(8, 2), "in_proj_weight", [(3, 2, 8)] * 3),
    "recurrent": (lambda: nn.GRUCell(4, 5), "weight_ih", [(2, 4)]),
    "grouped": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), "weight", [(2, 4, 5, 5)]),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_alone_it_is_torchs_for_every_kind_of_layer(kind):
    """Vectors, too: their norm is the largest singular value of one column."""
    make, name, shapes = LAYERS[kind]
    torch.manual_seed(0)
    plain = make().double()
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    weights = []
    for norm in (spectral_norm, nn.utils.parametrizations.spectral_norm):
        module = norm(copy.deepcopy(plain), name)
        for _ in range(300):
            module(*inputs)
        weights.append(getattr(module, name).detach())
    torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(weights[0], getattr(plain, name))


def test_complex_weights_have_the_norm_one():
    layer = spectral_norm(torch.nn.Linear(6, 8, dtype=torch.complex64))
    for _ in range(50):
        layer.weight  # noqa: B018
    assert float(torch.linalg.svdvals(layer.weight.detach())[0]) == pytest.approx(1, rel=1e-4)


def test_a_network_of_a_player_advances_by_itself_once_released():
    module, x = hold_updates(layer()), torch.randn(3, 5, dtype=torch.float64)
    before = vectors(module)
    module(x)
    torch.testing.assert_close(vectors(module), before, rtol=0, atol=0)
    release_updates(module)(x)
    assert not torch.equal(vectors(module)[0], before[0])
