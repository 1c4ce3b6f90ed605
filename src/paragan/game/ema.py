"""Averaged weights (Yazici et al. 2019; Karras et al. 2018): e <- e + (1 - beta) (w - e)."""

from collections.abc import Container, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.layout import local_shard
from paragan.game.options import EmaOptions
from paragan.layers.modes import remember_modes
from paragan.layers.precision import as_real


class Ema:
    """Averaged weights, and copied buffers, in a second copy of a network.

    The half-life counts images, so the average means the same at any batch size: beta = 0.5 ** (batch / half_life).
    Before `start_kimg` the copy equals the weights. A skipped update, decided on the device, leaves it unchanged.
    """

    def __init__(self, shadow: nn.Module, options: EmaOptions) -> None:
        remember_modes(shadow)
        self.net = shadow.eval().requires_grad_(False)
        self.options = options
        self._weights: list[Tensor] = [as_real(local_shard(p.detach())) for p in shadow.parameters()]
        self._buffers = list(shadow.buffers())
        self._constant: set[int] = set()  # numbers of weights that are not averaged

    def share_constants(self, net: nn.Module, names: Container[str]) -> None:
        """Stop averaging the weights of `net` with these names, which never change; use their memory if possible."""
        pairs = zip(self.net.parameters(), net.named_parameters(), strict=True)
        for number, (average, (name, weight)) in enumerate(pairs):
            if name in names:
                self._constant.add(number)
                if type(average) is type(weight) is nn.Parameter and average.dtype == weight.dtype:
                    average.data = weight.data

    def move_to(self, places: Sequence[Tensor]) -> None:
        """Move the averages into these tensors, and make them views."""
        for average, place in zip(self.net.parameters(), places, strict=True):
            average.data = place.copy_(average.data)
        self._weights = [as_real(p.detach()) for p in self.net.parameters()]

    def weight(self, images: int, batch: int) -> float:
        """Return 1 - beta of an update on `batch` images that ends at `images`."""
        half_life = self.options.half_life_kimg * 1000
        if self.options.ramp is not None:
            half_life = min(half_life, self.options.ramp * (images - batch))
        if images <= self.options.start_kimg * 1000 or half_life <= 0:
            return 1.0
        return float(1.0 - 0.5 ** (batch / half_life))

    @torch.no_grad()
    def update(
        self, net: nn.Module, ok: Tensor, images: int, batch: int, shards: Sequence[Tensor] | None = None
    ) -> None:
        """Average in the weights of `net` after an update.

        images: of its turns so far, over all ranks. shards: weights as the average is sharded on
        this rank; those of `net` unless given.
        """
        # 0 after a skipped step, without a host sync
        factor = ok.to(self._weights[0].dtype) * self.weight(images, batch)
        numbered = enumerate(zip(self._weights, net.parameters() if shards is None else shards, strict=True))
        pairs = [pair for number, pair in numbered if number not in self._constant]
        # In real numbers, as `_foreach_lerp_` takes no complex ones. Offloaded weights are on the host.
        weights = [as_real(weight).to(average.device, non_blocking=True) for average, weight in pairs]
        factors: Sequence[Any] = [factor] * len(pairs)  # torch's stub declares only numbers
        torch._foreach_lerp_([average for average, _ in pairs], weights, factors)
        for average, buffer in zip(self._buffers, net.buffers(), strict=True):
            torch.where(ok, buffer, average, out=average)
