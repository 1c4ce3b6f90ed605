"""Training and evaluation mode of networks with frozen parts, such as a pretrained extractor.

A frozen part is a module with weights, none of which requires a gradient, with all of its modules in evaluation mode.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from torch import nn


def frozen_modules(net: nn.Module) -> set[nn.Module]:
    """Return all modules inside the frozen parts of `net`."""
    weights = list(net.parameters())
    may_train = any(m.training for m in net.modules()) or any(w.requires_grad for w in weights)
    if weights and not may_train:
        return set(net.modules())
    return set(chain.from_iterable(frozen_modules(child) for child in net.children()))


def set_train_mode(net: nn.Module) -> nn.Module:
    """Put a network into training mode, except its frozen parts."""
    frozen = frozen_modules(net)
    net.train()
    _evaluate(frozen)
    return net


def remember_modes(net: nn.Module) -> None:
    """Mark modules in evaluation mode inside a network in training mode for `in_mode`, before `net.eval()`."""
    for module in net.modules():
        if net.training and not module.training:
            object.__setattr__(module, "stays_in_evaluation", True)


@contextmanager
def in_mode(net: nn.Module, training: bool) -> Iterator[None]:
    """Set evaluation mode, or the network's training mode, and restore all modes at the end."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        if not training:
            net.eval()
        elif not net.training:
            net.train()
            _evaluate(m for m, _ in modes if getattr(m, "stays_in_evaluation", False))
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _evaluate(modules: Iterator[nn.Module] | set[nn.Module]) -> None:
    for module in modules:
        module.training = False
