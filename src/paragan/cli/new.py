"""`paragan new`: a folder with custom networks, a loss, a recipe and a test to start from."""

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
_WORD = "mygan"  # placeholder in the templates
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the package, such as mygan.")]
Where = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Parent folder of NAME.")]


def new(name: Name, where: Where = Path()) -> None:
    """Write networks, a loss, a recipe and a test to start from."""
    _check_name(name, where)
    folder = where / name
    folder.mkdir(parents=True)
    write_text(folder / "__init__.py", "")
    for file in FILES:
        text = (files("paragan.cli") / "templates" / file).read_text(encoding="utf-8")
        write_text(folder / file, re.sub(rf"\b{_WORD}\b", name, text))
    print(_next_steps(name, where))


def _check_name(name: str, where: Path) -> None:
    """Raise `ConfigError` if the name is invalid, hides another module, or exists."""
    is_word = name.isidentifier() and name.isascii() and not name.startswith("_")
    if not is_word or keyword.iskeyword(name):
        raise ConfigError(f"new: {name!r} is not a package name; use letters, digits and _, such as {_WORD}")
    if (where / name).exists() or (where / f"{name}.py").exists():
        raise ConfigError(f"new: {where / name} exists already and was not changed; use another name or --dir DIR")
    if _is_a_module(name):
        raise ConfigError(f"new: {name!r} is an existing Python module; use another name")


def _is_a_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # a module that fails to import
        return True


def _next_steps(name: str, where: Path) -> str:
    is_here = where.resolve() == Path.cwd()
    lines = [] if is_here else [f"cd {shlex.quote(str(where))}"]
    python = sys.executable if os.access(sys.executable, os.X_OK) else "python"
    program = program_command() if is_here else absolute_command()  # a relative ./run is not found after cd
    train = f"{program} train {name}/recipe.yaml"
    commands = (
        (train, f"on digits, about a minute; samples in runs/{name}/samples/"),
        (f"{shlex.quote(python)} -m {name}.test_nets", f"tests {name}/nets.py; also run by pytest"),
        (f"{train} data.name=folder data.path=DIR data.size=32 --out runs/images", "on your images"),
    )
    for command, why in commands:
        lines += [f"# {why}", command]
    first = f"wrote {where / name}/: {', '.join(FILES)}"
    return "\n".join([first, "next", *(f"  {line}" for line in lines)])
