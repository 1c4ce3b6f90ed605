"""Which weights a loss reaches. torch's reducer waits for a gradient of every one of them; some turns have fewer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def unreachable_parameters(roots: Sequence[Tensor], weights: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those to which no path of the graph leads from any root."""
    todo = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(todo)
    reached: set[int] = set()
    while todo:
        node = todo.pop()
        held = getattr(node, "variable", None)  # of an AccumulateGrad
        if held is not None:
            reached.add(id(held))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return [weight for weight in weights if weight.requires_grad and id(weight) not in reached]


def zero_of(weights: Sequence[nn.Parameter]) -> Tensor:
    """A zero that reaches them all: their gradients become zeros."""
    return torch.stack([weight.flatten()[0].float() * 0.0 for weight in weights]).sum()
