"""Advice on a missing file of weights: the commands that write it."""

from __future__ import annotations

import shlex
from pathlib import Path

from paragan.core import registry
from paragan.core.command import program_command


def advise_missing(path: Path) -> str:
    """Return how to make a file that does not exist, from the run that its path names."""
    command = program_command()
    if path.name != "generator.safetensors" or path.parent.name != "export":
        return f"give a run folder, or a file of `{command} export`"
    run = path.parent.parent
    export = f"`{command} export {shlex.quote(str(run))}`"
    is_of_recipe = run.parent == Path("runs") and run.name in registry.names("recipes")
    if is_of_recipe and not run.exists():
        return f"run `{command} train {run.name}`, then {export}"
    return f"run {export}"
