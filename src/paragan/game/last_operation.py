"""What the graph of a network's outputs says about its last operation, for notices of a trial."""

from torch import Tensor

_SHAPES = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "ToCopy", "Alias", "Clone", "Permute")


def ends_in(values: Tensor, function: str) -> bool:
    """Return whether the last operation, besides changes of shape and format, is this function."""
    node = values.grad_fn
    while node is not None and node.name().startswith(_SHAPES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(f"{function}Backward")
