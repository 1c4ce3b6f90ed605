"""`PerceptualLoss`: G's output and a target, compared by a frozen network."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.types import Batch, Rows
from paragan.schemes import synchronous
from paragan.storage.exported_network import ExportedNetwork

LAYERS = {"0": 0.5, "2": 2.0}


def vgg() -> nn.Module:
    """Convolutions and activations in place, as VGG."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        conv = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3)
        return nn.Sequential(conv[0], nn.ReLU(inplace=True), conv[1], nn.ReLU(inplace=True)).double()


class Enhance(nn.Module):
    """A generator that changes its input image."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.conv = nn.Conv2d(1, 1, 3, padding=1).double()

    def forward(self, z, low):
        return self.conv(low)


def batch(rows: Rows) -> Batch:
    draw = torch.Generator().manual_seed(rows.step)
    both = torch.randn(2, rows.total, 1, 6, 6, generator=draw, dtype=torch.float64)
    return Batch(rows, {"image": both[0][rows.window], "low": both[1][rows.window]})


def played(loss: pg.PerceptualLoss, parts: int = 1, steps: int = 2) -> tuple[nn.Module, list[float]]:
    """G after some steps in which nothing else pulls at it, and the losses."""
    policy = pg.Policy(kind=torch.optim.SGD, lr=0.1, micro_batches=parts)
    d = nn.Sequential(nn.Flatten(), nn.Linear(36, 1), nn.Flatten(0)).double()
    g = pg.Player(side=pg.Side.G, net=Enhance(), policy=policy)
    prior = pg.Prior(seed=0, latent=2, discriminator_arguments=("image", "low"), dtype=torch.float64)
    nothing = pg.Loss(lambda real, fake: 0 * (real + fake), lambda fake, real: 0 * fake)

    class Judge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = d

        def forward(self, x, low):
            return self.net(x)

    gan = pg.GAN(g=g, d=pg.Player(side=pg.Side.D, net=Judge()), loss=nothing, prior=prior, g_penalties=(loss,))
    stream = (batch(Rows(step=step, first=0, count=4, total=4)) for step in range(steps))
    losses = [synchronous.step(gan, stream).read()["g/loss/perceptual"] for _ in range(steps)]
    return g.net, losses


def plain(distance, normalize, steps=2) -> tuple[nn.Module, list[float]]:
    """The same by hand."""
    net, conv = Enhance(), vgg().eval().requires_grad_(False)

    def features(x):
        first = conv[0](x)
        found = first, conv[2](first.relu())
        return [f / (f.square().sum(1, keepdim=True) + 1e-10).sqrt() for f in found] if normalize else found

    losses = []
    for step in range(steps):
        found = batch(Rows(step=step, first=0, count=4, total=4)).tensors
        pairs = zip((0.5, 2.0), features(net(None, found["low"])), features(found["image"]), strict=True)
        loss = 3 * sum(weight * distance(a - b).mean() for weight, a, b in pairs)
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for weight, grad in zip(net.parameters(), grads, strict=True):
                weight -= 0.1 * grad
        losses.append(loss.item())
    return net, losses


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("distance", "normalize"), [("l1", False), ("l2", True)])
def test_a_perceptual_loss_equals_the_plain_loop(distance, normalize, parts):
    network = vgg()
    before = [weight.clone() for weight in network.parameters()]
    loss = pg.PerceptualLoss(network=network, layers=LAYERS, distance=distance, normalize=normalize, weight=3.0)
    net, losses = played(loss, parts)
    expected, numbers = plain(torch.abs if distance == "l1" else torch.square, normalize)
    for mine, theirs in zip(net.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)
    assert losses == pytest.approx(numbers, rel=1e-6)
    assert all(map(torch.equal, network.parameters(), before))


def test_what_the_network_returns_is_compared_without_layers():
    class Two(nn.Module):
        def forward(self, x):
            return {"one": x, "two": 2 * x}

    losses = [played(pg.PerceptualLoss(network=net), steps=1)[1] for net in (nn.Identity(), Two())]
    assert losses[1][0] == pytest.approx(3 * losses[0][0])


@pytest.mark.slow
def test_an_exported_network_gives_a_perceptual_loss(tmp_path):
    network = vgg()
    dynamic = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    program = torch.export.export(network.eval(), (torch.zeros(2, 1, 6, 6).double(),), **dynamic)
    torch.export.save(program, tmp_path / "vgg.pt2")
    losses = [played(pg.PerceptualLoss(network=net))[1] for net in (network, ExportedNetwork(tmp_path / "vgg.pt2"))]
    assert losses[0] == losses[1]


def test_mistakes_are_one_line():
    with pytest.raises(pg.ConfigError, match=r"perceptual: the network has no layer 'conv5'; its modules are 0, 1, 2"):
        pg.PerceptualLoss(network=vgg(), layers=["conv5"])
    with pytest.raises(pg.ConfigError, match="perceptual: distance must be l1 or l2, not 'cosine'"):
        pg.PerceptualLoss(network=vgg(), distance="cosine")
    with pytest.raises(pg.ConfigError, match="target 'high' is not in the batch, which has image, low; set target"):
        played(pg.PerceptualLoss(network=vgg(), target="high"))
    with pytest.raises(pg.ConfigError, match="perceptual: '0' is not a tensor with a row per sample; let the network"):
        played(pg.PerceptualLoss(network=nn.Flatten(0)))
