"""What is chosen before a run starts. Each entry of `CHOICES` completes the settings that a config leaves to `auto`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.dist import World
from paragan.core.network_factory import Model

Say = Callable[[str], None]
Choice = Callable[[RunConfig, Path, bool, World, Say, Model | None], RunConfig]


def _executor(config: RunConfig, out: Path, fresh: bool, world: World, say: Say, model: Model | None) -> RunConfig:
    """`train.executor: auto`: eager or compiled, and the precision and memory format of both players."""
    if config.train.executor != "auto":
        return config
    from paragan.runs.choose_executor import choose_executor

    return choose_executor(config, out, fresh, world, say, model)


def _layout(config: RunConfig, out: Path, fresh: bool, world: World, say: Say, model: Model | None) -> RunConfig:
    """`train.layout: auto`: memory format and padding of channels, on the executor chosen before."""
    if config.train.layout != "auto":
        return config
    from paragan.runs.layout import choose_layout

    return choose_layout(config, out, fresh, world, say, model)


CHOICES: tuple[Choice, ...] = (_executor, _layout)
