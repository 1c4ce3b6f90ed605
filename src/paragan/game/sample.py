"""Images from a generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paragan.core.types import Made, Rows
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior


def sampling_network(player: Player) -> CalledNetwork:
    """The averaged generator if there is one, else the live one; in full precision."""
    return CalledNetwork(player.net if player.ema is None else player.ema.net)


@torch.no_grad()
def sample(generator: CalledNetwork, z_BZ: Tensor, y_B: Tensor | None, batch: int = 250) -> Tensor:
    """x_BCHW in [-1, 1] in evaluation mode (running statistics), `batch` at a time; the mode is put back."""
    module: nn.Module = generator.module
    was = module.training
    module.eval()
    try:
        labels = [None] * -(-len(z_BZ) // batch) if y_B is None else y_B.split(batch)
        return torch.cat([Made.of(generator(z, y)).images for z, y in zip(z_BZ.split(batch), labels, strict=True)])
    finally:
        module.train(was)


def grid_latents(prior: Prior, columns: int = 10, rows: int = 8) -> tuple[Tensor, Tensor | None]:
    """Fixed latents for pictures over time.

    One class per row where there are classes (at most ten), equal latents per column.
    """
    if not prior.num_classes:
        return prior.draw("grid", Rows(0, 0, columns * rows, columns * rows))
    classes = min(prior.num_classes, 10)
    z, _ = prior.draw("grid", Rows(0, 0, columns, columns))
    return z.repeat(classes, 1), torch.arange(classes, device=prior.device).repeat_interleave(columns)
