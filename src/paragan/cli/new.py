"""`paragan new`: a folder with networks, losses, a recipe and a test of one's own that work at once."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from paragan.core.command import absolute_command, program_command
from paragan.core.errors import ConfigError
from paragan.core.files import write_text

FILES = ("nets.py", "loss.py", "recipe.yaml", "test_nets.py")
_WORD = "mygan"  # in the templates
Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is called: a Python name such as mygan.")]
Where = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The folder NAME is made in.")]


def new(name: Name, where: Where = Path()) -> None:
    """Write networks, a loss, a recipe and a test to start from. They go into the folder NAME."""
    folder = where / refuse_unfit(name, where)
    folder.mkdir(parents=True)
    write_text(folder / "__init__.py", "")
    for file in FILES:
        text = (files("paragan.cli") / "templates" / file).read_text(encoding="utf-8")
        write_text(folder / file, re.sub(rf"\b{_WORD}\b", name, text))
    print(next_steps(name, where))


def refuse_unfit(name: str, where: Path) -> str:
    """The name itself; `ConfigError` if it cannot be imported as that, hides another module, or exists."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name.startswith("_"):
        raise ConfigError(f"new: found the name {name!r}, expected letters, digits and _ such as {_WORD}")
    if (where / name).exists() or (where / f"{name}.py").exists():
        raise ConfigError(f"new: {where / name} exists already; nothing was changed: give another name or --dir DIR")
    if _is_a_module(name):
        raise ConfigError(f"new: found the name {name!r}, which is a Python module already; give another name")
    return name


def _is_a_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # one that is half there
        return True


def next_steps(name: str, where: Path) -> str:
    """What to type now."""
    is_here = where.resolve() == Path.cwd()
    lines = [] if is_here else [f"cd {shlex.quote(str(where))}"]
    python = sys.executable if os.access(sys.executable, os.X_OK) else "python"
    train = f"{program_command() if is_here else absolute_command()} train {name}/recipe.yaml"
    commands = (
        (train, f"digits, a minute; pictures in runs/{name}/samples/"),
        (f"{shlex.quote(python)} -m {name}.test_nets", f"after every change of {name}/nets.py; pytest runs it, too"),
        (f"{train} data.name=folder data.path=DIR data.size=32 --out runs/images", "your own"),
    )
    width = max(len(command) for command, _ in commands)
    lines += [f"{command:<{width}}  # {why}" for command, why in commands]
    return "\n".join([f"wrote {where / name}/: {', '.join(FILES)}", "next", *(f"  {line}" for line in lines)])
