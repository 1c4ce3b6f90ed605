"""The losses of many cells as one: every cell's own on its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paragan.game.gan import Loss


class MixedLoss:
    """num: cells. rows: of each. Which loss a row has lies on the device, in one place: a recorded turn reads it there.

    Those who have had the same kinds get the same pair, whoever trains for which.
    """

    def __init__(self, num: int, rows: int, device: torch.device) -> None:
        self._which_B = torch.zeros(num * rows, dtype=torch.uint8, device=device)
        self._rows = rows
        self._now: tuple[int, ...] = ()
        self._pairs: dict[tuple[int, ...], Loss] = {}

    def of(self, losses: Sequence[Loss]) -> Loss:
        """The pair for these, by cell; of one kind it is that."""
        kinds = list({id(loss): loss for loss in losses}.values())
        kinds.sort(key=id)
        if len(kinds) == 1:
            return kinds[0]
        key = tuple(map(id, kinds))
        which = tuple(key.index(id(loss)) for loss in losses)
        if (*key, *which) != self._now:
            self._now = (*key, *which)
            self._which_B.copy_(torch.tensor(which, dtype=torch.uint8).repeat_interleave(self._rows))
        if key not in self._pairs:
            self._pairs[key] = self._pair(kinds)
        return self._pairs[key]

    def _pair(self, kinds: Sequence[Loss]) -> Loss:
        def d(real: Tensor, fake: Tensor) -> Tensor:
            return self._chosen([kind.d(real, fake) for kind in kinds])

        def g(fake: Tensor, real: Tensor | None) -> Tensor:
            return self._chosen([kind.g(fake, real) for kind in kinds])

        return Loss(d, g, any(kind.g_needs_real for kind in kinds))

    def _chosen(self, found: Sequence[Tensor]) -> Tensor:
        which_B, result = self._which_B.view(-1, *(1 for _ in found[0].shape[1:])), found[0]
        for number, values in enumerate(found[1:], start=1):
            result = torch.where(which_B == number, values, result)
        return result
