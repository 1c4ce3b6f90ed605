"""Tensors of many cells as one: stacks along a first axis of cells, of which the tensors of the cells are views."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def stack_in_place(tensors: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Stack the tensors of each cell with those of the others, and make them views of the stacks."""
    stacks = [torch.stack(of_cells) for of_cells in zip(*tensors, strict=True)]
    move_into(stacks, tensors)
    return stacks


def move_into(stacks: Sequence[Tensor], tensors: Sequence[Sequence[Tensor]]) -> None:
    """Make the tensors of each cell views of stacks, with their values, where they are not."""
    for stack, *of_cells in zip(stacks, *tensors, strict=True):
        for tensor, row in zip(of_cells, stack, strict=True):
            if tensor.data_ptr() != row.data_ptr():  # the network, or a clone, has put a new tensor there
                tensor.data = row.copy_(tensor.data)


def views_of_rows(rows_CP: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return views (C, …) of rows with the shapes and memory layouts of the weights of a network."""
    views = []
    first = rows_CP.storage_offset()
    for weight in weights:
        strides = (rows_CP.stride(0), *torch.empty_like(weight).stride())
        views.append(rows_CP.as_strided((len(rows_CP), *weight.shape), strides, first))
        first += weight.numel()
    return views


def stack_weights(weights: Sequence[Sequence[nn.Parameter]]) -> tuple[Tensor, list[nn.Parameter]]:
    """Return the weights of each cell as rows of one matrix, (C, P), and as stacks that view it."""
    first = weights[0]
    flat_CP = first[0].new_empty(len(weights), sum(weight.numel() for weight in first))
    views = views_of_rows(flat_CP, first)
    move_into(views, weights)  # the players' own parameters become rows: optimisers and genomes need no copy
    pairs = zip(views, first, strict=True)
    return flat_CP, [nn.Parameter(view, weight.requires_grad) for view, weight in pairs]


def memory_order(weight: Tensor) -> tuple[int, ...]:
    """Return the axes of a stack in the order of their memory: first the cells."""
    strides = torch.empty_like(weight[0]).stride()  # those of a dense tensor in the same layout, as in `views_of_rows`
    return (0, *(1 + axis for axis in sorted(range(len(strides)), key=lambda axis: -strides[axis])))
