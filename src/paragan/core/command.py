"""The shell command that starts paragan, and commands in messages."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from paragan.core import registry


def absolute_command() -> str:
    """Return the command that starts this program from any working directory."""
    command = _as_called()
    return shlex.quote(os.path.abspath(command)) if os.sep in command else program_command()


def program_command() -> str:
    """Return the words that start this program in a shell: `./run`, `paragan`, its path, or `python -m paragan`."""
    if command := _as_called():
        return shlex.quote(command)
    return "paragan" if shutil.which("paragan") else f"{shlex.quote(sys.executable)} -m paragan"


def _as_called() -> str:
    """Return how `./run` was called, or the path of a script `paragan` that PATH lacks; otherwise an empty text."""
    script = sys.argv[0]
    is_by_path = os.path.basename(script) == "paragan" and os.path.isfile(script) and not shutil.which("paragan")
    return os.environ.get("PARAGAN_COMMAND") or (script if is_by_path else "")


def advise_missing(path: Path) -> str:
    """Return how to make a file of weights that does not exist, from the run that its path names."""
    command = program_command()
    if path.name != "generator.safetensors" or path.parent.name != "export":
        return f"give a run folder, or a file of `{command} export`"
    run = path.parent.parent
    export = f"`{command} export {shlex.quote(str(run))}`"
    if run.parent == Path("runs") and run.name in registry.names("recipes") and not run.exists():
        return f"run `{command} train {run.name}`, then {export}"
    return f"run {export}"
