"""The shell command that starts paragan, and commands in messages."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from paragan.core import registry


def absolute_command() -> str:
    """Return the command that starts this program from any working directory."""
    command = os.environ.get("PARAGAN_COMMAND", "")
    return shlex.quote(os.path.abspath(command)) if os.sep in command else program_command()


def program_command() -> str:
    """Return the words that start this program, quoted for a shell.

    The script `./run` names itself in PARAGAN_COMMAND; otherwise `paragan` or `python -m paragan`.
    """
    if command := os.environ.get("PARAGAN_COMMAND"):
        return shlex.quote(command)
    return "paragan" if shutil.which("paragan") else f"{shlex.quote(sys.executable)} -m paragan"


def advise_missing(path: Path) -> str:
    """Return how to make a file of weights that does not exist, from the run that its path names."""
    command = program_command()
    if path.name != "generator.safetensors" or path.parent.name != "export":
        return f"give a run folder, or a file of `{command} export`"
    run = path.parent.parent
    export = f"`{command} export {shlex.quote(str(run))}`"
    is_of_recipe = run.parent == Path("runs") and run.name in registry.names("recipes")
    if is_of_recipe and not run.exists():
        return f"run `{command} train {run.name}`, then {export}"
    return f"run {export}"
