"""Optimizer step of one player: optimizer, learning rates, loss scale, skipped steps.

Nothing here waits for the device. A step whose gradient norm is not finite is skipped *on the
device* by optimisers that can (torch's fused Adam, AdamW, SGD, Adagrad); for the others one flag,
and a scheduled learning rate, pass through the host.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.layout import is_sharded
from paragan.core.settings_tree import located_key
from paragan.game import optimizer_calls, schedule
from paragan.game.options import ScheduleOptions
from paragan.game.parameter_groups import arguments_of, check_types, key_of, refusal, split_into_groups, with_floats

_Groups = list[dict[str, Any]]

# raised by optimizer constructors for unknown arguments and invalid values
_REFUSALS = (TypeError, ValueError, IndexError, KeyError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Optimiser, learning rate, clipping and micro-batches of a player.

    kind: an optimiser class of torch's interface. arguments: its keywords, without `lr`. groups:
    other arguments, and another `lr`, for the parameters whose names match `match`, a pattern such
    as `*.bias`; the first match counts. update_probability: of D (`PlayerOptions`).
    elsewhere: names of the network's parameters that are on other ranks, which patterns may match.
    """

    kind: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    lr: float = 2e-4
    arguments: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleOptions = ScheduleOptions()
    max_norm: float | None = None
    micro_batches: int = 1
    updates_per_step: int = 1
    groups: Sequence[Mapping[str, Any]] = ()
    update_probability: float = 1.0
    elsewhere: Sequence[str] = ()

    def optimizer(self, parameters: Iterable[tuple[str, Tensor]]) -> torch.optim.Optimizer:
        """Return the optimiser of named parameters, in groups; fused if torch has a kernel for it.

        Its groups have `param_names`, by which a saved state is found. Raises `ConfigError` for
        invalid arguments, and for a group without parameters.
        """
        groups = split_into_groups(parameters, self.groups, self.elsewhere)
        arguments = with_floats(self.kind, self.arguments)
        on_device = getattr(self.kind, "_step_supports_amp_scaling", False)  # of classes in `optim/`, as of fused ones
        where = partial(located_key, self.arguments, default="optimizer.arguments")
        check_types(self.kind, self.arguments, where)
        for number, group in enumerate(self.groups):
            check_types(self.kind, group, partial(key_of, number, group))
        try:
            optimizer = self._fused(groups, arguments) or self._construct(groups, on_device, arguments)
        except _REFUSALS as error:
            raise ConfigError(refusal(self.kind, self.arguments, error, where)) from None
        for number, group in enumerate(self.groups):
            self._check_group(number, group, optimizer)
        if any(weight.is_complex() for group in groups for weight in group["params"]):
            self._check_complex(arguments)
        return optimizer

    @property
    def changed(self) -> dict[str, Any]:
        """Fields that differ from their defaults: a step that is written anew refuses those that it does not honour."""
        default = type(self)()
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def lr_of(self, group: Mapping[str, Any]) -> float:
        """Return a group's learning rate before the schedule, in its configured ratio to `lr`."""
        if "configured_lr" not in group:
            return self.lr
        lr: float
        lr, of_policy = group["configured_lr"]
        return lr if self.lr == of_policy else lr * (self.lr / of_policy)

    def with_lr_factor(self, factor: float) -> Self:
        """Return this policy with all learning rates times `factor`."""
        groups = [{**group, "lr": group["lr"] * factor} if "lr" in group else group for group in self.groups]
        return replace(self, lr=self.lr * factor, groups=tuple(groups))

    def _fused(self, groups: _Groups, arguments: dict[str, Any]) -> torch.optim.Optimizer | None:
        if "fused" not in inspect.signature(self.kind).parameters or "fused" in arguments:
            return None
        if any(weight.is_complex() for group in groups for weight in group["params"]):
            return None  # refused by fused kernels, at the first step only
        try:
            return self._construct(groups, True, {"fused": True, **arguments})
        except RuntimeError:  # this device or dtype has no fused kernel
            return None

    def _construct(self, groups: _Groups, lr_on_device: bool, arguments: dict[str, Any]) -> torch.optim.Optimizer:
        device = next(group["params"][0].device for group in groups if group["params"])
        lr_on_device = lr_on_device and schedule.varies(self.schedule)

        def place(lr: float) -> float | Tensor:
            dtype = torch.float64 if device.type == "cpu" else torch.float32  # fused GPU kernels read only float32
            return torch.tensor(lr, dtype=dtype, device=device) if lr_on_device else lr

        placed = []
        for group in groups:
            settings = with_floats(self.kind, group)
            if "lr" in group:
                settings["configured_lr"] = (settings["lr"], self.lr)  # read by `lr_of`, after a change of the policy
            placed.append({**settings, "lr": place(settings.get("lr", self.lr))})
        optimizer_calls.avoid_compiler()
        return self.kind(placed, lr=place(self.lr), **arguments)

    def _check_complex(self, arguments: Mapping[str, object]) -> None:
        """Let the optimiser step a complex weight, which some refuse at their first step only."""
        probe = torch.zeros(1, dtype=torch.complex64, requires_grad=True)
        probe.grad = torch.zeros_like(probe)
        try:
            self.kind([probe], lr=self.lr, **arguments).step()
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"optimizer: {self.kind.__name__} cannot train complex weights ({error}); use another, such as Adam"
            ) from None

    def _check_group(self, number: int, group: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
        """Let the constructor check a group's arguments; it checks only those for all groups."""
        settings = arguments_of(number, group)
        pattern = group["match"]
        weights = next(g["params"] for g in optimizer.param_groups if g.get("match") == pattern)
        if not weights:
            return  # the rank that has them checks
        try:
            self.kind(weights[:1], **with_floats(self.kind, {"lr": self.lr, **self.arguments, **settings}))
        except _REFUSALS as error:
            raise ConfigError(refusal(self.kind, settings, error, partial(key_of, number, group))) from None


class FollowsPolicy:
    """A player whose policy states how often it is updated; base of players in this process and on other ranks."""

    policy: Policy

    @property
    def updates_per_step(self) -> int:
        """Updates of this player per step."""
        return self.policy.updates_per_step

    @property
    def update_probability(self) -> float:
        """Probability of an update at each batch."""
        return self.policy.update_probability


def set_lr(optimizer: torch.optim.Optimizer, policy: Policy, count: Tensor) -> None:
    """Write this update's learning rates, in place if they are tensors."""
    if schedule.varies(policy.schedule):
        write_lr(optimizer, policy, schedule.factor(policy.schedule, count))


def write_lr(optimizer: torch.optim.Optimizer, policy: Policy, factor: float | Tensor = 1) -> None:
    """Write the learning rates of all groups: the policy's times the factor."""
    for group in optimizer.param_groups:
        lr = policy.lr_of(group) * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = float(lr)


def learning_rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return the present learning rates, `lr` and `lr[PATTERN]` of each group. Syncs the device."""
    rates = {}
    for group in optimizer.param_groups:
        name = f"lr[{group['match']}]" if "match" in group else "lr"
        rates[name] = float(group["lr"])
    return rates


def step_if(ok: Tensor, optimizer: torch.optim.Optimizer, keep_layout: bool = False) -> None:
    """Call `optimizer.step()`, only here in the library, unless `ok` (0-dim bool) is false.

    The gradients are consumed; keep_layout: their memory layout does not change.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        # As torch's GradScaler; offloaded weights are stepped on the host.
        where = optimizer.param_groups[0]["params"][0].device
        optimizer.found_inf = (~ok).float().to(where)  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]  # gradients are unscaled already
        if not keep_layout:
            _make_gradients_contiguous(optimizer)
    elif not ok.item():
        return
    method = optimizer_calls.plain_step(optimizer)
    if method is None:
        optimizer.step()
    else:
        with torch.set_grad_enabled(optimizer.defaults.get("differentiable", False)):  # as torch's wrapper does
            method(optimizer)


def _make_gradients_contiguous(optimizer: torch.optim.Optimizer) -> None:
    """Make channels-last CPU gradients contiguous views of the same memory.

    The fused Adam runs in memory order, whatever the index of a value, and copies others: twice the time of a step.
    """
    kind: Any = type(optimizer)
    if kind not in (torch.optim.Adam, torch.optim.AdamW) or not runs_in_memory_order(kind):
        return
    for group in optimizer.param_groups:
        for weight in group["params"] if group.get("fused") else ():
            grad = weight.grad
            if grad is None or grad.dim() != 4 or not weight.is_cpu or is_sharded(grad):
                continue
            nhwc = grad.is_contiguous(memory_format=torch.channels_last) and not grad.is_contiguous()
            if nhwc and grad.stride() == weight.stride():
                weight.grad = grad.permute(0, 2, 3, 1).view(grad.shape)


@cache
def runs_in_memory_order(kind: type[torch.optim.Optimizer]) -> bool:
    """Return whether fused steps run in memory order, by comparing two layouts of a weight."""
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
