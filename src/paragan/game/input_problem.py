"""Which number of the data a network cannot take, where it has failed: no class, or one without a row, or complex."""

import inspect
from collections.abc import Sequence

from torch import Tensor, nn

from paragan.core.source import dtype_name

_NO_EMBEDDING = "out of range"
_NO_ROW = (_NO_EMBEDDING, "out of bounds", "Class values")  # of embeddings, of indices and of one_hot
_NO_INDEX = ("scalar types: Long, Int", "used as indices", "index tensor")


def input_problem(net: nn.Module, inputs: Sequence[Tensor | None], error: Exception) -> str:
    """Return the line about the input that a call of a network failed on; empty if another cause is likely."""
    reason = (str(error).splitlines() or [""])[0]
    owner = type(net).__name__
    for name, x in zip(inspect.signature(net.forward).parameters, inputs, strict=False):
        if x is None or not x.numel():
            continue
        if any(text in reason for text in _NO_INDEX) and _is_class(net, inputs, x):
            kind = f"{dtype_name(x.dtype)}, and {owner} takes it for the number of a class"
            return f"data: {name} is {kind} ({reason}); pass whole numbers from 0 as int64"
        if x.is_complex() and not any(weight.is_complex() for weight in net.parameters()):
            kind = f"{dtype_name(x.dtype)}, and {owner} has real weights"
            return f"data: {name} is {kind} ({reason}); pass torch.view_as_real of it, two real numbers for each"
        if not (x.is_complex() or x.is_floating_point()) and any(text in reason for text in _NO_ROW):
            value = int(x.max()) if x.min() >= 0 else int(x.min())
            embeddings = [module for module in net.modules() if isinstance(module, nn.Embedding)]
            sizes = [module.num_embeddings for module in embeddings] if _NO_EMBEDDING in reason else []
            # Of several embeddings the first without this row: a second call to see which fails would leave the
            # other ranks of a sharded network waiting.
            size = next((size for size in sizes if not 0 <= value < size), 0)
            if size:
                classes = f"{owner} has an embedding of {size} classes, 0 to {size - 1}"
                larger = f", or make it torch.nn.Embedding({value + 1}, …)" if value >= size else ""
                return f"data: {name} is {value}, and {classes} ({reason}); number classes from 0{larger}"
            if not sizes:  # of `one_hot`, or an index of the network's
                return f"data: {name} is {value} ({reason}); number classes from 0"
    return ""


def _is_class(net: nn.Module, inputs: Sequence[Tensor | None], x: Tensor) -> bool:
    """Return whether a call succeeds, or fails for a number without a row, if one input is int64."""
    try:
        net(*(x.long() if value is x else value for value in inputs))
    except Exception as error:
        return any(text in str(error) for text in _NO_ROW)
    return True
