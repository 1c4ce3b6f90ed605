"""Code outside paragan: a module by its dotted path, or a .py file next to the recipe that names it.

Its failures become one-line errors with the place in the user's file.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from paragan.core.errors import ConfigError, ParaganError

_LIBRARY = (str(Path(__file__).resolve().parent.parent), sysconfig.get_path("stdlib"), "<")
_MAX_CHARACTERS = 300


def is_file_name(name: str) -> bool:
    """Return whether a name is that of a file, not a dotted path."""
    return name.endswith(".py")


def absolute_path(name: str, source: str) -> str:
    """Return the absolute path of a file named in a recipe, or in the current folder."""
    folder = Path(source).parent if os.path.isfile(source) else Path()
    return os.path.abspath(folder / name)


def find_outside_source(name: str) -> Path:
    """Return the source file of a dotted path or .py file; `ConfigError` if there is none."""
    if not is_file_name(name):
        return _find_module(name)
    require_file(name)
    return Path(name)


def require_file(name: str) -> None:
    """Raise `ConfigError` unless this .py file exists."""
    if not os.path.isfile(name):  # also where no file can have this name
        raise ConfigError(f"{name} does not exist; give the path of a .py file, relative to the recipe's folder")


def import_outside(name: str) -> ModuleType:
    """Import a dotted path, or a .py file; `ConfigError` if its code raises an error."""
    with reraise_as_config_error(f"importing {name}"):
        return _import_file(Path(name)) if is_file_name(name) else importlib.import_module(name)


@contextmanager
def reraise_as_config_error(action: str) -> Iterator[None]:
    """Turn failures inside, except paragan's and `MemoryError`, into a one-line `ConfigError`."""
    try:
        yield
    except (ParaganError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:_MAX_CHARACTERS]
        raise ConfigError(f"{action} raised {type(error).__name__}: {reason}{_location(error)}") from error


def _location(error: Exception) -> str:
    """Return the last line of the traceback that belongs neither to paragan nor to a library."""
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_LIBRARY) and "site-packages" not in frame.filename
    ]
    return f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""


def _find_module(name: str) -> Path:
    """Return the source of a module; importing its packages may raise errors of their code."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"cannot import {name!r}: it is not the dotted path of a module, such as mygan.nets")
    spec = None
    missing: str | None = name
    with reraise_as_config_error(f"importing {name.rpartition('.')[0]}"):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            missing = error.name
            if not f"{name}.".startswith(f"{missing}."):
                raise
    if spec is None:
        raise ConfigError(
            f"cannot import {name!r}: no module named {missing!r} on PYTHONPATH; add its parent "
            "folder, or give a .py file such as mine.py"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"cannot import {name!r}: it has no .py source file; give a module that has one")
    return Path(spec.origin)


def _import_file(path: Path) -> ModuleType:
    """Import the file once, with its folder last on the import path."""
    name = f"paragan-file:{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
