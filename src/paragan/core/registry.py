"""The folder is the registry: `model.name: biggan` is `models/biggan.py`, outside code a dotted path or a .py file.

A file on a shelf may have a frozen dataclass `Options`. It is *read* from the source, not imported, so that help and
config errors stay fast and leave torch alone; the class may therefore use only builtins, dataclasses, typing and
`core.options`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Literal, get_type_hints

from paragan.core import outside_file
from paragan.core.errors import ConfigError
from paragan.core.field_docs import MEANING, meanings
from paragan.core.outside_code import reraise_as_config_error

_ROOT = Path(__file__).resolve().parent.parent
_READABLE = ("__future__", "dataclasses", "typing", "collections.abc", "paragan.core.option_types")
_SHELVES = (
    *("models", "losses", "penalties", "augment", "datasets", "schemes", "parallel", "optim", "metrics"),
    *("writers", "recipes", "presets"),
)
FROM_MEMORY = "from_memory"  # `model.name` of a run whose networks a program passes
_RECORDED = {("models", FROM_MEMORY)}  # written into configs by programs, and never offered as a choice

_OFFERED = {  # what outside code must offer
    "models": ("Generator", "Discriminator"),
    "losses": ("d_loss", "g_loss"),
    "penalties": ("Penalty",),
    "datasets": ("source",),
    "parallel": ("Strategy",),
    "optim": ("Optimizer",),
    "writers": ("Writer",),
    "augment": ("Augment",),
}


def categories() -> list[str]:
    """The shelves there are: folders whose files are chosen by name."""
    return [shelf for shelf in _SHELVES if (_ROOT / shelf).is_dir()]


def names(shelf: str) -> list[str]:
    """Names of the public files on a shelf, sorted."""
    folder = _ROOT / shelf
    files = [path.stem for path in folder.glob(f"*{_suffix(shelf)}")]
    packages = [path.parent.name for path in folder.glob("*/__init__.py")]
    public = [name for name in (*files, *packages) if not name.startswith("_")]
    return sorted(name for name in public if (shelf, name) not in _RECORDED)


def load(shelf: str, name: str) -> ModuleType:
    """Import a file of a shelf, or outside code: then in one line if that fails or lacks a name."""
    path = find_source(shelf, name)
    if "." not in name:
        return importlib.import_module(f"paragan.{shelf}.{name}")
    with reraise_as_config_error(f"importing {name}"):
        module = outside_file.load(path) if outside_file.is_file_name(name) else importlib.import_module(name)
    if missing := [wanted for wanted in _OFFERED.get(shelf, ()) if not hasattr(module, wanted)]:
        describe_choices = " and ".join(_OFFERED[shelf])
        raise ConfigError(f"{path}: found no {' and no '.join(missing)}, expected {describe_choices} ({shelf}.{name})")
    return module


def options(shelf: str, name: str) -> type:
    """The `Options` dataclass of a file, without importing the file; an empty one where it has none.

    Those of every data set have `labels` too; False leaves the labels out.
    """
    kind = _options(find_source(shelf, name), f"{shelf}.{name}")
    return _with_labels(kind) if shelf == "datasets" else kind


def find_source(shelf: str, name: str, also: tuple[str, ...] = ()) -> Path:
    """The source file behind a name, or a `ConfigError` that lists what there is (and, with it, `also`)."""
    if outside_file.is_file_name(name):
        return outside_file.find_file(name)
    if "." in name:
        return _outside(name)
    if name not in names(shelf) and (shelf, name) not in _RECORDED:
        meant = did_you_mean(closest_name(name, [*also, *names(shelf)]))
        raise ConfigError(f"found {name!r}, expected {describe_choices(shelf, also)}{meant}")
    package = _ROOT / shelf / name / "__init__.py"
    return package if package.is_file() else _ROOT / shelf / f"{name}{_suffix(shelf)}"


def describe_choices(shelf: str, also: tuple[str, ...] = ()) -> str:
    """What may be named, for messages."""
    known = ", ".join([*also, *names(shelf)])
    return f"{f'one of {known}' if known else f'a file of {shelf}/'} (or a dotted path or .py file of outside code)"


def closest_name(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known word most like this one, if any is alike at all; capitals do not matter."""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), folded, 1, least)
    return folded[close[0]] if close else None


def did_you_mean(word: str | None) -> str:
    """The end of a message."""
    return "" if word is None else f", did you mean {word!r}?"


def _suffix(shelf: str) -> str:
    return ".yaml" if shelf in ("recipes", "presets") else ".py"


def _outside(name: str) -> Path:
    found = _search(name) if all(part.isidentifier() for part in name.split(".")) else None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        describe_choices = "the dotted path of a module (is its folder on PYTHONPATH?) or a file such as mine.py"
        raise ConfigError(f"found {name!r}, expected {describe_choices}")
    return Path(found.origin)


def _search(name: str) -> ModuleSpec | None:
    """None: there is no such module. The search imports the packages around it, which may fail in their own ways."""
    try:
        with reraise_as_config_error(f"importing {name.rpartition('.')[0]}"):
            return importlib.util.find_spec(name)
    except ConfigError as error:
        missing = getattr(error.__cause__, "name", None)
        if isinstance(error.__cause__, ModuleNotFoundError) and f"{name}.".startswith(f"{missing}."):
            return None
        raise


@cache  # one class per file, so that two configs of the same settings are equal
def _options(path: Path, name: str) -> type:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"found a file that Python cannot read, {path}: {error}") from None
    wanted = [node for node in tree.body if _is_readable(node)]
    module = ModuleType(f"paragan-options:{name}")
    module.__file__ = str(path)  # where the meanings of its fields are read
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        code = compile(ast.Module(wanted, []), str(path), "exec")
        with reraise_as_config_error(f"{path}: `Options`"):
            exec(code, module.__dict__)  # noqa: S102 our shelf, or code the user named
            kind: type = module.__dict__.get("Options", _NoOptions)
            get_type_hints(kind, include_extras=True)
    except ConfigError as error:
        if not isinstance(error.__cause__, NameError):
            raise
        allowed = ", ".join(_READABLE[1:])
        text = f"{path}: {error.__cause__}; `Options` is read, not imported, and may use only {allowed}"
        raise ConfigError(text) from None
    if not is_dataclass(kind):
        raise ConfigError(f"{path}: found a plain class `Options`, expected @dataclass(frozen=True) above it")
    return kind


@cache
def _with_labels(kind: type) -> type:
    """The same settings and `labels`; a data set that has such a setting of another type takes False as well."""
    held = next((one for one in fields(kind) if one.name == "labels"), None)
    hint, default = (bool, True) if held is None else (get_type_hints(kind)["labels"] | Literal[False], held.default)
    meaning = "Whether the labels of the data are used." if held is None else meanings(kind).get("labels", "")
    labels = field(default=default, metadata={MEANING: f"{meaning} false: none, the run is unconditional.".lstrip()})
    is_frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return make_dataclass(
        "Options", [("labels", hint, labels)], bases=(kind,), frozen=is_frozen, namespace={"__doc__": kind.__doc__}
    )


def _is_readable(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in _READABLE for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in _READABLE
    return isinstance(node, ast.ClassDef) and node.name == "Options"


@dataclass(frozen=True)
class _NoOptions:
    pass
