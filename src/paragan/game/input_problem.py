"""Which number of the data a network cannot take, where it has failed: no class, or one without a row, or complex."""

import inspect
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from torch import Tensor, nn

from paragan.core.source import dtype_name

_NO_ROW = ("out of range", "out of bounds", "Class values")  # of embeddings, of indices and of one_hot
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
            size = _num_rows(net, inputs, error)
            value = int(x.max()) if x.min() >= 0 else int(x.min())
            if not size:  # of `one_hot`, or an index of the network's
                return f"data: {name} is {value} ({reason}); number classes from 0"
            if value < 0 or value >= size:
                classes = f"{owner} has an embedding of {size} classes, 0 to {size - 1}"
                larger = f", or make it torch.nn.Embedding({value + 1}, …)" if value >= size else ""
                return f"data: {name} is {value}, and {classes} ({reason}); number classes from 0{larger}"
    return ""


def _num_rows(net: nn.Module, inputs: Sequence[Tensor | None], error: Exception) -> int:
    """Return the rows of the embedding in which a call fails: the last one that is called; 0 if there is none."""
    sizes = [0]
    with ExitStack() as hooks, suppress(type(error)):
        for module in net.modules():
            if isinstance(module, nn.Embedding):
                hook = module.register_forward_pre_hook(lambda module, _: sizes.append(module.num_embeddings))
                hooks.callback(hook.remove)
        net(*inputs)
    return sizes[-1]


def _is_class(net: nn.Module, inputs: Sequence[Tensor | None], x: Tensor) -> bool:
    """Return whether a call succeeds, or fails for a number without a row, if one input is int64."""
    try:
        net(*(x.long() if value is x else value for value in inputs))
    except Exception as error:
        return any(text in str(error) for text in _NO_ROW)
    return True
