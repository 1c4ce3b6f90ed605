"""Steps of optimisers: skipped without a host sync, and without the import of torch's compiler.

A step whose gradient norm is not finite is skipped *on the device* by optimisers that can (torch's fused Adam, AdamW,
SGD, Adagrad); for the others one flag, and a scheduled learning rate, pass through the host.

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

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer, optimizer as torch_optimizer

from paragan.core.layout import is_sharded

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


def step_if(ok: Tensor, optimizer: Optimizer, keep_layout: bool = False) -> None:
    """Call `optimizer.step()`, only here in the library, unless `ok` (0-dim bool) is false.

    The gradients are consumed; keep_layout: their memory layout does not change.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):  # as torch's GradScaler
        where = optimizer.param_groups[0]["params"][0].device  # the host, of offloaded weights
        optimizer.found_inf = (~ok).float().to(where)  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]  # gradients are unscaled already
        if not keep_layout:
            _make_gradients_contiguous(optimizer)
    elif not ok.item():
        return
    method = plain_step(optimizer)
    if method is None:
        optimizer.step()
    else:
        with torch.set_grad_enabled(optimizer.defaults.get("differentiable", False)):  # as torch's wrapper does
            method(optimizer)


def _make_gradients_contiguous(optimizer: Optimizer) -> None:
    """Give channels-last CPU gradients the strides of contiguous ones, on the same memory; a step takes half the time.

    torch's fused Adam would copy other gradients, but reads all tensors in the order of memory. The weight is
    channels-last too, so values still meet their gradients, though the indices of the two no longer agree.
    """
    if type(optimizer) not in (Adam, AdamW) or not runs_in_memory_order(type(optimizer)):  # type: ignore[arg-type]
        return
    for group in optimizer.param_groups:
        for weight in group["params"] if group.get("fused") else ():
            grad = weight.grad
            if grad is None or grad.dim() != 4 or not weight.is_cpu or is_sharded(grad):
                continue
            is_channels_last = grad.is_contiguous(memory_format=torch.channels_last) and not grad.is_contiguous()
            if is_channels_last and grad.stride() == weight.stride():
                weight.grad = grad.permute(0, 2, 3, 1).view(grad.shape)


@cache
def runs_in_memory_order(kind: type[Optimizer]) -> bool:
    """Return whether fused steps run in memory order: with and without the trick, a weight is stepped equally."""
    start = torch.arange(24.0).view(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    stepped = []
    for renamed in (False, True):
        weight = start.clone().requires_grad_()
        optimizer = kind([weight], lr=0.1, fused=True)  # type: ignore[call-arg]
        for step in (1, 2):
            grad = (start * step).sin()
            weight.grad = grad.permute(0, 2, 3, 1).view(grad.shape) if renamed else grad
            step_if(torch.tensor(True), optimizer, keep_layout=True)
        stepped.append(weight.detach())
    return torch.equal(*stepped)


_MAX_SCALE = 2.0**24  # gradients of 0 overflow at no scale; without a limit, it would grow to inf and stay there


class Scaler:
    """Loss scale of one player for fp16, on the device (Micikevicius et al. 2018, section 3.2).

    Halved when a step overflows, doubled after `interval` good steps.
    """

    def __init__(self, device: torch.device, initial: float = 65536.0, interval: int = 2000) -> None:
        self.scale = torch.tensor(initial, device=device)
        self.good = torch.zeros((), dtype=torch.int64, device=device)
        self.interval = interval

    def update(self, ok: Tensor) -> None:
        """Count a step and adapt the scale. ok: whether the step was finite, 0-dim bool."""
        good = torch.where(ok, self.good + 1, 0)
        grow = good >= self.interval
        self.scale.mul_(torch.where(ok, torch.where(grow, 2.0, 1.0), 0.5)).clamp_(max=_MAX_SCALE)
        self.good.copy_(torch.where(grow, 0, good))
