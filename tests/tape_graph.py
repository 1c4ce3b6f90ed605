"""A recording on the CPU: the tensor operations of one call, which are then run again with what lies in its places.

As on an accelerator nothing else of that call is known any more: not its Python, not the host's numbers, and a number
that the host asks for ends it. (`make_fx` records the same, in twenty times as long.)
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

_ASKED = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)


class _Tape(TorchDispatchMode):
    """lines: operations below autograd with what they were given and gave; kept, so that no id comes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = []

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        if operation in _ASKED:
            raise RuntimeError("the host asked a recording for a number")
        gave = operation(*given, **(named or {}))
        self.lines.append((operation, given, named or {}, tree_flatten(gave)[0]))
        return gave


class TapeGraph:
    """Fulfils `hardware.graphs.Graph`. replays: of all that were made."""

    replays = 0

    def warm_up(self, work, given):
        return work(given)

    def record(self, work, given):
        """To record the work is to run it: the first replay finds that done."""
        with _Tape() as tape:
            self._last = work(given)
        self._lines, self._fresh = tape.lines, True
        self._found = {name: value.detach().clone() for name, value in self._last.items()}
        return self._found

    @torch.no_grad()
    def replay(self):
        TapeGraph.replays += 1
        if self._fresh:
            self._fresh = False
            return
        now = {}  # by the id of what was in its place then; all else stays where it was

        def present(value):
            return now.get(id(value), value) if isinstance(value, Tensor) else value

        for operation, given, named, gave in self._lines:
            again = operation(*tree_map(present, given), **tree_map(present, named))
            now.update(zip(map(id, gave), tree_flatten(again)[0], strict=True))
        for name, mine in self._found.items():
            mine.copy_(present(self._last[name]))
