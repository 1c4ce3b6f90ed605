"""Solver steps of generators that integrate from noise to an image, such as `models/flow_unet`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import nn

from paragan.core.errors import ConfigError


@runtime_checkable
class MultiStep(Protocol):
    """A module inside of a generator that samples in several steps."""

    sampling_steps: int


def sampling_steps(generator: nn.Module) -> int | None:
    """Return the number of steps; None for a generator that has none."""
    return next((module.sampling_steps for module in _multi_step(generator)), None)


@contextmanager
def with_steps(generator: nn.Module, steps: int | None) -> Iterator[None]:
    """Sample in this many steps inside the block; None: unchanged. Raises `ConfigError` if it has none."""
    modules = _multi_step(generator) if steps is not None else []
    before = [module.sampling_steps for module in modules]
    if steps is not None and (not modules or type(steps) is not int or steps < 1):
        problem = f"steps={steps!r} must be an integer from 1" if modules else "steps: this generator makes one step"
        raise ConfigError(f"{problem}; {'change it' if modules else 'leave it out'}")
    try:
        for module in modules:
            module.sampling_steps = steps or 1
        yield
    finally:
        for module, number in zip(modules, before, strict=True):
            module.sampling_steps = number


def _multi_step(generator: nn.Module) -> list[MultiStep]:
    return [module for module in generator.modules() if isinstance(module, MultiStep)]
