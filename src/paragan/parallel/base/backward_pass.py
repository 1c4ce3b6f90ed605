"""One backward pass, whose wait for other ranks is counted as communication."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from paragan.core.phases import Phase, thread_clock


class _Start(torch.autograd.Function):
    """A number whose gradient with respect to a tensor is given.

    `torch.autograd.backward(tensor, gradient)` computes the same, and imports sympy to compare their shapes (torch
    2.13): 0.4 s of CPU time at the first step of every run.
    """

    @staticmethod
    def forward(context: FunctionCtx, root: Tensor, gradient: Tensor) -> Tensor:
        context.save_for_backward(gradient)
        return torch.zeros((), device=root.device)

    @staticmethod
    def backward(context: FunctionCtx, _: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (gradient,) = context.saved_tensors  # type: ignore[attr-defined]
        return gradient, None


def backward(roots: Sequence[Tensor], gradients: Sequence[Tensor | None], ranks: int) -> None:
    """Run a backward pass. ranks: over which a reducer sums its gradients, and waits at the end.

    torch runs the callbacks of a backward at its end, in the order in which they were queued. That of the first root is
    queued before the reducer's: from it on, the pass only waits for other ranks.
    """
    roots = [
        root if gradient is None else _Start.apply(root, gradient)
        for root, gradient in zip(roots, gradients, strict=True)
    ]
    clock = thread_clock()
    if clock is None or ranks == 1:
        torch.autograd.backward(roots)
        return
    before = clock.current
    engine = torch.autograd.Variable._execution_engine
    first = next(root for root in roots if root.requires_grad)

    def begin_wait() -> None:
        clock.enter(Phase.COMMUNICATION)

    hook = first.register_hook(lambda _: engine.queue_callback(begin_wait))
    try:
        torch.autograd.backward(roots)
    finally:
        hook.remove()
        clock.enter(before)
