"""Optimizer of one player, and its learning rates. Its steps: `optimizer_calls`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
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
        lr_on_device = getattr(self.kind, "_step_supports_amp_scaling", False)  # steps on the device: so is lr
        where = partial(located_key, self.arguments, default="optimizer.arguments")
        check_types(self.kind, self.arguments, where)
        for number, group in enumerate(self.groups):
            check_types(self.kind, group, partial(key_of, number, group))
        try:
            optimizer = self._fused(groups, arguments) or self._construct(groups, lr_on_device, arguments)
        except _REFUSALS as error:
            raise ConfigError(refusal(self.kind, self.arguments, error, where)) from None
        for number, group in enumerate(self.groups):
            self._check_group(number, group, optimizer)
        if any(weight.is_complex() for group in groups for weight in group["params"]):
            self._check_complex(arguments)
        return optimizer

    @property
    def non_defaults(self) -> dict[str, Any]:
        """Fields that differ from their defaults: executors with a step of their own refuse those they do not know."""
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
                settings["configured_lr"] = (settings["lr"], self.lr)  # of `lr_of`; a ratio rounds an unchanged lr
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


def set_lr(optimizer: torch.optim.Optimizer, policy: Policy, count: Tensor | None = None) -> None:
    """Write the learning rates of all groups, in place if they are tensors; scheduled if `count` updates are given."""
    factor: float | Tensor = 1
    if count is not None:
        if not schedule.varies(policy.schedule):
            return
        factor = schedule.factor(policy.schedule, count)
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
