"""What the graph of a network's outputs says about its last operation, for notices of a trial."""

from torch import Tensor
from torch.autograd.graph import Node

_SHAPES = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "ToCopy", "Alias", "Clone", "Permute")
_SIGMOIDS = ("Sigmoid", "Hardsigmoid", "Softmax")
_SCALES = ("Mean", "Clamp", "Mul", "Div", "Add", "Sub", "Slice")  # which leave probabilities in [0, 1], or not


def ends_in(values: Tensor, function: str) -> bool:
    """Return whether the last operation, besides changes of shape and format, is this function."""
    node = values.grad_fn
    while node is not None and node.name().startswith(_SHAPES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(f"{function}Backward")


def are_probabilities(values: Tensor) -> bool:
    """Return whether values in [0, 1] come from a sigmoid or softmax, perhaps clamped, scaled or averaged."""
    return bool(((values >= 0) & (values <= 1)).all()) and _is_of_sigmoid(values.grad_fn)


def _is_of_sigmoid(node: Node | None) -> bool:
    if node is None:
        return False
    name = node.name()
    if name.startswith(_SIGMOIDS):
        return True
    inputs = _inputs(node)
    if name.startswith("Reciprocal"):  # 1 / (1 + exp(-x)): the sum between has the exponential as its input
        return any(source.name().startswith("Exp") for added in inputs for source in _inputs(added))
    return name.startswith((*_SHAPES, *_SCALES)) and bool(inputs) and all(map(_is_of_sigmoid, inputs))


def _inputs(node: Node) -> list[Node]:
    return [source for source, _ in node.next_functions if source is not None]
