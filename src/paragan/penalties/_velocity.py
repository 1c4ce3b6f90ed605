"""Generators that predict velocities of a flow, as `models/flow_unet` has them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from paragan.core.errors import ConfigError


@runtime_checkable
class VelocityNetwork(Protocol):
    """A module inside of G that predicts noise minus image at a time."""

    def velocity(self, x: Tensor, y_B: Tensor | None, t_B: Tensor) -> Tensor:
        """Return the velocity (B, C, H, W) at images x."""

    def blank(self) -> nn.Module:
        """Return a network of the same sizes with other weights."""


def velocity_network(generator: nn.Module, penalty: str) -> tuple[str, VelocityNetwork]:
    """Return name and module of the velocity network in a generator. Raises `ConfigError` if it has none."""
    found = ((name, module) for name, module in generator.named_modules() if isinstance(module, VelocityNetwork))
    first = next(found, None)
    if first is None:
        raise ConfigError(f"penalty {penalty} needs a generator of velocities; use model flow_unet")
    return first
