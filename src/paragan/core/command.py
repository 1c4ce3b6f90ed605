"""The shell command that starts paragan, for commands in messages."""

from __future__ import annotations

import os
import shlex
import shutil
import sys


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
