"""What a strategy adds to the forward and backward of a turn: reduction of gradients over ranks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from paragan.layers.all_reduce import ReduceGroup


@dataclass(frozen=True)
class Reduction:
    """Reduction of the gradients of a turn over ranks.

    ranks: over which the gradient is a mean; the loss, a sum, is multiplied by it. sync_context: encloses each
    micro-batch; called with True if gradients are to be reduced. zero_for_unused: returns a scalar that joins the
    last backward, or None, by its roots and its terms. across: gathers the rows of all ranks.
    """

    ranks: int = 1
    sync_context: Callable[[bool], AbstractContextManager[None]] = lambda reduces: nullcontext()
    zero_for_unused: Callable[[Sequence[Tensor], Sequence[str]], Tensor | None] = lambda roots, terms: None
    across: ReduceGroup | None = None


NO_REDUCTION = Reduction()
