"""Calls of torch's optimisers without the import of torch's compiler.

Constructing an optimiser, and its first step, import `torch._dynamo` with sympy and DTensor (torch 2.11 to 2.13), 1.3 s
of CPU time in every process that trains, compiled or not. These calls need it only to keep the compiler from tracing
them. Here they run without it where it was not imported; once it is, they are torch's.
"""

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import torch
from torch.optim import Optimizer, optimizer as of_torch

_CACHED = "__dynamo_disable"  # where `torch._disable_dynamo` keeps the function that it calls instead
_WRAPPED = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")


@cache
def avoid_compiler() -> None:
    """Let methods of `torch.optim.Optimizer` run without the compiler; does nothing where torch has other wrappers."""
    for name in _WRAPPED:
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None and not hasattr(plain, _CACHED):
            setattr(plain, _CACHED, partial(_call, getattr(Optimizer, name), plain))


def _has_compiler() -> bool:
    return "torch._dynamo" in sys.modules


def _call(
    wrapper: Callable[..., object], plain: Callable[..., object], *arguments: object, **keywords: object
) -> object:
    if _has_compiler():
        with suppress(AttributeError):  # another thread was first
            delattr(plain, _CACHED)  # the wrapper then asks the compiler, and keeps its answer
        return wrapper(*arguments, **keywords)
    return plain(*arguments, **keywords)


def step(optimizer: Optimizer) -> None:
    """Call `optimizer.step()`; without the compiler, the method inside of torch's wrappers."""
    plain = _plain_step(type(optimizer))  # type: ignore[arg-type]  # a class is hashable
    if plain is None or _has_compiler() or _has_hooks(optimizer):
        optimizer.step()
        return
    with torch.set_grad_enabled(optimizer.defaults.get("differentiable", False)):
        plain(optimizer)


@cache
def _plain_step(kind: type[Optimizer]) -> Callable[[Optimizer], object] | None:
    return inspect.unwrap(kind.step) if f"{kind.__module__}.".startswith("torch.optim.") else None


def _has_hooks(optimizer: Optimizer) -> bool:
    """Return whether a step is more than the method of its class: hooks, or a method of the object."""
    hooks: tuple[object, ...] = (
        *(of_torch._global_optimizer_pre_hooks, of_torch._global_optimizer_post_hooks),
        *(optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks),
    )
    return "step" in vars(optimizer) or any(hooks)
