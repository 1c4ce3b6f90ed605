"""Outside code in a single file, such as `model.name: wgan.py` next to the recipe that names it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from paragan.core.errors import ConfigError


def is_file_name(name: str) -> bool:
    """Return whether a name is that of a file, not a dotted path."""
    return name.endswith(".py")


def absolute_path(name: str, source: str) -> str:
    """Return the absolute path of a file named in a recipe, or in the current folder."""
    folder = Path(source).parent if os.path.isfile(source) else Path()
    return os.path.abspath(folder / name)


def find_file(name: str) -> Path:
    """Return the path of the file; `ConfigError` if it does not exist."""
    path = Path(name)
    if not os.path.isfile(path):  # also where no file can have this name
        raise ConfigError(f"{name} does not exist; give the path of a .py file, relative to the recipe's folder")
    return path


def import_file(path: Path) -> ModuleType:
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
