"""Errors of torch about inputs, in words of the data: class numbers without a row or of another dtype, complex ones."""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paragan.core.printable import counted
from paragan.core.source import dtype_name

_NO_EMBEDDING = "out of range"
_NO_ROW = (_NO_EMBEDDING, "out of bounds", "Class values")  # of embeddings, of indices and of one_hot
_NO_INDEX = ("scalar types: Long, Int", "used as indices", "index tensor")  # of the same three


def input_problem(net: nn.Module, inputs: Sequence[Tensor | None], error: Exception) -> str:
    """Return what is wrong with the input that a call of a network failed on; empty if another cause is likely."""
    reason = (str(error).splitlines() or [""])[0]
    owner = type(net).__name__
    names = inspect.signature(net.forward).parameters
    present = [(name, x) for name, x in zip(names, inputs, strict=False) if x is not None and x.numel()]
    if any(text in reason for text in _NO_INDEX):
        for name, x in sorted(present, key=lambda pair: pair[1].numel()):  # labels are smaller than samples
            if _may_be_index(x):
                kind = f"{dtype_name(x.dtype)}, and {owner} takes it for the number of a class"
                return f"{name} is {kind} ({reason}); pass whole numbers from 0 as int64"
    for name, x in present:
        if x.is_complex() and not any(weight.is_complex() for weight in net.parameters()):
            kind = f"{dtype_name(x.dtype)}, and {owner} has real weights"
            return f"{name} is {kind} ({reason}); pass torch.view_as_real of it, two real numbers for each"
        is_integer = not (x.is_complex() or x.is_floating_point())
        if is_integer and any(text in reason for text in _NO_ROW) and (problem := _row_problem(net, x, reason)):
            return f"{name} is {problem}"
    return ""


def _row_problem(net: nn.Module, numbers: Tensor, reason: str) -> str:
    """Return the number that has no row, and the cure; empty if each embedding has a row for all of them."""
    value = int(numbers.max()) if numbers.min() >= 0 else int(numbers.min())
    embeddings = [module for module in net.modules() if isinstance(module, nn.Embedding)]
    if _NO_EMBEDDING not in reason or not embeddings:  # of `one_hot`, or of an index of the network's
        return f"{value} ({reason}); number classes from 0"
    # Which one failed is unknown, and a second call to find out would leave other ranks of a sharded network waiting:
    # the first without this row.
    size = next((layer.num_embeddings for layer in embeddings if not 0 <= value < layer.num_embeddings), 0)
    if not size:
        return ""
    classes = f"{type(net).__name__} has an embedding of {counted(size, 'class')}, 0 to {size - 1}"
    larger = f", or make it torch.nn.Embedding({value + 1}, …)" if value >= size else ""
    return f"{value}, and {classes} ({reason}); number classes from 0{larger}"


def _may_be_index(x: Tensor) -> bool:
    """Return whether this may be numbers of classes, or tokens, in another dtype than an index has.

    A number per sample may be; others if all are whole, unless all are 0, as those of an empty mask.
    """
    if x.dtype is torch.int64 or x.is_complex():
        return False
    return x.dim() == 1 or (bool(x.any()) and torch.equal(x.long().to(x), x))
