"""Calls of torch's optimisers without the import of torch's compiler.

The compiler must not trace optimisers, so torch (2.11 to 2.13) wraps their methods by `torch._disable_dynamo`: the
first call of a method imports `torch._dynamo`, with sympy and DTensor, and stores the function that it makes of the
method in an attribute of it, for later calls. The import takes 1.3 s of CPU time in every process that trains, compiled
or not. Here the attribute has `_call` beforehand, which runs the method itself until something else has imported the
compiler; from then on calls are torch's. `step` has one more wrapper, for the grad mode, which `plain_step` removes.
"""

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

from torch.optim import Optimizer, optimizer as torch_optimizer

_CACHED = "__dynamo_disable"  # the attribute where `torch._disable_dynamo` stores the function that it calls instead


@cache  # once per process
def avoid_compiler() -> None:
    """Let methods of `torch.optim.Optimizer` run without the compiler; no effect if torch wraps them otherwise."""
    for method in (Optimizer.add_param_group, Optimizer.state_dict, Optimizer.load_state_dict, Optimizer.zero_grad):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, _CACHED):
            setattr(plain, _CACHED, partial(_call, method))


def _has_compiler() -> bool:
    return "torch._dynamo" in sys.modules


def _call(method: Any, *arguments: object, **keywords: object) -> object:
    if not _has_compiler():
        return method.__wrapped__(*arguments, **keywords)
    with suppress(AttributeError):  # another thread was first
        delattr(method.__wrapped__, _CACHED)  # the method then calls the compiler, and keeps its result
    return method(*arguments, **keywords)


def plain_step(optimizer: Optimizer) -> Callable[[Optimizer], object] | None:
    """Return `step` inside of torch's wrappers; None: call `optimizer.step()`.

    The caller sets the grad mode, which torch's wrapper would.
    """
    method = _plain_method(type(optimizer))  # type: ignore[arg-type]  # a class is hashable
    return None if method is None or _has_compiler() or _has_hooks(optimizer) else method


@cache
def _plain_method(kind: type[Optimizer]) -> Callable[[Optimizer], object] | None:
    return inspect.unwrap(kind.step) if f"{kind.__module__}.".startswith("torch.optim.") else None


def _has_hooks(optimizer: Optimizer) -> bool:
    """Return whether a step is more than the method of its class: hooks, or a method of the object."""
    of_all = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    of_this = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    return "step" in vars(optimizer) or any(of_all) or any(of_this)
