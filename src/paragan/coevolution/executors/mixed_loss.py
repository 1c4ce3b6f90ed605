"""Loss for the rows of many cells, each with the loss of its cell."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paragan.core.loss import Loss


class MixedLoss:
    """Losses of `num` cells with `rows` rows each.

    A tensor on the device stores the loss number of each row, which a recorded turn reads. Equal
    sets of losses share one `Loss` object, however they are assigned to cells.
    """

    def __init__(self, num: int, rows: int, device: torch.device) -> None:
        self._number_B = torch.zeros(num * rows, dtype=torch.uint8, device=device)
        self._rows = rows
        self._assigned: tuple[int, ...] = ()
        self._pairs: dict[tuple[int, ...], Loss] = {}

    def of(self, losses: Sequence[Loss]) -> Loss:
        """Return the loss of all rows, from losses by cell; one that all share is unchanged."""
        kinds = list({id(loss): loss for loss in losses}.values())
        kinds.sort(key=id)
        if len(kinds) == 1:
            return kinds[0]
        key = tuple(map(id, kinds))
        numbers = tuple(key.index(id(loss)) for loss in losses)
        if (*key, *numbers) != self._assigned:
            self._assigned = (*key, *numbers)
            numbers_C = torch.tensor(numbers, dtype=torch.uint8)
            self._number_B.copy_(numbers_C.repeat_interleave(self._rows))
        if key not in self._pairs:
            self._pairs[key] = self._pair(kinds)
        return self._pairs[key]

    def _pair(self, kinds: Sequence[Loss]) -> Loss:
        def d(real: Tensor, fake: Tensor) -> Tensor:
            return self._select([kind.d(real, fake) for kind in kinds])

        def g(fake: Tensor, real: Tensor | None) -> Tensor:
            return self._select([kind.g(fake, real) for kind in kinds])

        return Loss(d, g, any(kind.g_needs_real for kind in kinds))

    def _select(self, values_of: Sequence[Tensor]) -> Tensor:
        number_B = self._number_B.view(-1, *(1 for _ in values_of[0].shape[1:]))
        result = values_of[0]
        for number, values in enumerate(values_of[1:], start=1):
            result = torch.where(number_B == number, values, result)
        return result
