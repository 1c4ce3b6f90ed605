"""Backward pass of a turn, whose wait for reduced gradients counts as communication."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paragan.core.phases import Phase, thread_clock


def backward(roots: Sequence[Tensor], gradients: Sequence[Tensor | None], ranks: int) -> None:
    """Run a backward pass. ranks: over which a reducer sums its gradients, and waits at the end.

    Callbacks of a backward run in the order in which they are queued; reducers queue theirs later.
    """
    clock = thread_clock()
    if clock is None or ranks == 1:
        torch.autograd.backward(roots, gradients)
        return
    before = clock.current
    engine = torch.autograd.Variable._execution_engine
    first = next(root for root in roots if root.requires_grad)

    def wait() -> None:
        clock.enter(Phase.COMMUNICATION)

    hook = first.register_hook(lambda _: engine.queue_callback(wait))
    try:
        torch.autograd.backward(roots, gradients)
    finally:
        hook.remove()
        clock.enter(before)
