"""A recording on the CPU: the tensor operations of one call, which are then run again with what lies in its places.

As on an accelerator nothing else of that call is known any more: not its Python, not the host's numbers.
"""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx


class FxGraph:
    """Fulfils `hardware.graphs.Graph`. replays: of all that were made."""

    replays = 0

    def rehearse(self, work, given):
        return work(given)

    def record(self, work, given):
        """To trace the work is to run it: the first replay finds that done."""
        found = {}

        def flat(*tensors):
            found.update(work(dict(zip(given, tensors, strict=True))))
            return list(found.values())

        self._program, self._given, self._fresh = make_fx(flat)(*given.values()), list(given.values()), True
        self._found = {name: value.detach().clone() for name, value in found.items()}
        return self._found

    @torch.no_grad()
    def replay(self):
        FxGraph.replays += 1
        if self._fresh:
            self._fresh = False
            return
        for mine, value in zip(self._found.values(), self._program(*self._given), strict=True):
            mine.copy_(value)
