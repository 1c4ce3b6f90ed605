"""How a run is played: one game, or what an extension provides for a key of the config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from paragan import build
from paragan.config import RunConfig
from paragan.core.dist import World
from paragan.core.extension import check_extension
from paragan.engine.training_loop import TrainingLoop

if TYPE_CHECKING:
    from paragan.runs.run_request import RunRequest

Say = Callable[[str], None]


class Runner:
    """Runner of one game. An extension derives its own from it, which `make_runner` in its `runner.py` returns."""

    def start(self, request: RunRequest) -> int | None:
        """Start the processes of a run and return its exit code; None: as `runs.start` does for one game."""
        return None

    def trainer(self, request: RunRequest, world: World, say: Say, stop: Callable[[], bool]) -> TrainingLoop:
        """Return the trainer of a session at step 0. Collective."""
        return build.trainer(request.config, request.out, say, stop, world=world, model=request.model)

    def open(self, config: RunConfig, folder: Path, say: Say) -> TrainingLoop:
        """Return a trainer at step 0 that only reads the run folder."""
        return build.trainer(config, folder, say, lambda: False, reading=True)

    def start_lines(self, config: RunConfig) -> Sequence[str]:
        """Return lines about the length of the run that only this kind of run has."""
        return ()


def runner_of(config: RunConfig) -> Runner:
    """Return the runner of a config: the extension's if it sets a key that one provides.

    The extension of the key `grid` is `extensions/grid`. Raises `ConfigError` if its folder was removed.
    """
    key = config.extension_key
    if key is None:
        return Runner()
    check_extension(key, key)
    runner: Runner = import_module(f"paragan.extensions.{key}.runner").make_runner()
    return runner
