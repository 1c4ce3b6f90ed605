"""Pain points of two networks in one process: the naive code shows the symptom, ours does not."""

import torch
import torch.nn.functional as F
from torch import nn

from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, distance, game, player

G, D = Side.G, Side.D


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Painter(nn.Module):
    """A generator of 1x8x8 whose batch norm sees numbers far from zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm, self.last = nn.Linear(6, 16), AffineBatchNorm(16), nn.Linear(16, 64)
        nn.init.constant_(self.layer.bias, 50.0)

    def forward(self, z, y=None):
        return self.last(F.relu(self.norm(self.layer(z)))).tanh().unflatten(1, (1, 8, 8))


def test_an_average_without_batch_norms_statistics_paints_junk():
    """POSTECH-CVLab/PyTorch-StudioGAN #64, #66; boschresearch/OASIS #21; odegeasslbc/FastGAN-pytorch #4;
    google/compare_gan #31; lucidrains/ema-pytorch #29: only parameters were averaged.
    """
    net, shadow, naive = (Painter().double() for _ in range(3))
    g = Player(
        side=G,
        net=net,
        strategy=none.Strategy(),
        policy=Policy(lr=1e-4),
        ema=Ema(shadow, EmaOptions(half_life_kimg=1e-3)),
    )
    gan = game(g, player(D, none.Strategy()))
    stream = batches()
    for _ in range(60):
        synchronous.step(gan, stream)
        with torch.no_grad():
            for mine, theirs in zip(naive.parameters(), net.parameters(), strict=True):
                mine.lerp_(theirs, 0.5)
    z = normal(8, 6)
    with torch.no_grad():
        painted = net(z)  # by this batch's statistics
        junk, average = (float((of.eval()(z) - painted).abs().mean()) for of in (naive, shadow))
    assert distance(dict(shadow.named_buffers()), dict(net.named_buffers())) == 0
    assert junk > 0.8
    assert average < 0.4
