"""Registry of files: `model.name: biggan` is `models/biggan.py`.

A category is a folder of such files: models, losses, penalties, … Outside code is a dotted path or
a .py file. A file may have a frozen dataclass `Options`. It is *read* from the source, not
imported, so that help and config errors are fast and do not import torch; the class may therefore
use only builtins, dataclasses, typing, `core.option_types` and the `_options` of its folder.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_type_hints

from paragan.core import outside_file
from paragan.core.errors import ConfigError
from paragan.core.field_docs import MEANING, meanings
from paragan.core.option_types import TORCH_OPTIMISERS, Interval, Natural
from paragan.core.outside_code import reraise_as_config_error

_PREFETCH = (
    "Batches that are read and decoded ahead of the training step; 0: none, each is read when it "
    "is needed; null: one more than `threads` for data that is decoded from files, 0 for data in "
    "memory and for grids."
)
_THREADS = "Threads that read and decode batches ahead; null: one per CPU thread of the process, at most 4."
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")  # not in "et al. 2018"
_ROOT = Path(__file__).resolve().parent.parent
_READABLE = ("__future__", "dataclasses", "typing", "collections.abc", "paragan.core.option_types")
_SHARED_OPTIONS = re.compile(r"paragan\.\w+\._options")  # shared, without torch
_NOUNS = {  # category -> name of one of its files, for messages
    "models": "model",
    "losses": "loss",
    "penalties": "penalty",
    "augment": "augmentation",
    "datasets": "dataset",
    "schemes": "scheme",
    "parallel": "strategy",
    "optim": "optimizer",
    "metrics": "metric",
    "features": "feature extractor",
    "writers": "writer",
    "recipes": "recipe",
    "presets": "preset",
}
_MAX_RECIPE_BYTES = 1 << 20
FROM_MEMORY = "from_memory"  # `model.name` of networks passed by a program
_HIDDEN = {("models", FROM_MEMORY)}  # written by programs, not a choice

_REQUIRED_NAMES = {  # names that outside code must define
    "models": ("Generator", "Discriminator"),
    "losses": ("loss",),
    "penalties": ("Penalty",),
    "datasets": ("source",),
    "parallel": ("Strategy",),
    "optim": ("Optimizer",),
    "writers": ("Writer",),
    "metrics": ("Metric",),
    "features": ("prepare",),
    "augment": ("Augment",),
}


def categories() -> list[str]:
    """Return the folders whose files are chosen by name."""
    return [category for category in _NOUNS if (_ROOT / category).is_dir()]


def noun(category: str) -> str:
    """Return the name of one file of a category: `losses` -> loss."""
    return _NOUNS.get(category, f"file of {category}/")


def names(category: str) -> list[str]:
    """Return the names of the public files of a category, sorted."""
    folder = _ROOT / category
    files = [path.stem for path in folder.glob(f"*{_suffix(category)}")]
    packages = [path.parent.name for path in folder.glob("*/__init__.py")]
    public = [name for name in (*files, *packages) if not name.startswith("_")]
    return sorted(name for name in public if (category, name) not in _HIDDEN)


def descriptions(category: str) -> dict[str, str]:
    """Return names with one sentence each, not imported; `ConfigError` for an unknown category."""
    known = categories()
    if category not in known:
        meant = did_you_mean(closest_name(category, known))
        raise ConfigError(f"unknown category {category!r}; choose one of {', '.join(known)}{meant}")
    sources = {name: find_source(category, name) for name in names(category)}
    if category == "recipes":
        sources |= {str(path): path for path in _local_recipes()}
    described = {name: _description(path) for name, path in sources.items()}
    kinds = TORCH_OPTIMISERS if category == "optim" else ()
    of_torch = {kind: f"torch.optim.{kind}" for kind in kinds}
    return of_torch | described


def _local_recipes() -> list[Path]:
    """Return the recipes in the working directory: YAML files with sections `model` and `loss`."""
    paths = sorted(p for p in Path().glob("*.yaml") if p.is_file() and p.stat().st_size < _MAX_RECIPE_BYTES)
    return [path for path in paths if {"model", "loss"} <= _top_level_keys(path)]


def _top_level_keys(path: Path) -> set[str]:
    return set(re.findall(r"^(\w+):", path.read_text(encoding="utf-8", errors="replace"), re.M))


def load_module(category: str, name: str) -> ModuleType:
    """Import a file of a category; `ConfigError` if outside code fails or lacks a required name."""
    path = find_source(category, name)
    if "." not in name:
        return importlib.import_module(f"paragan.{category}.{name}")
    with reraise_as_config_error(f"importing {name}"):
        module = outside_file.import_file(path) if outside_file.is_file_name(name) else importlib.import_module(name)
    required = _REQUIRED_NAMES.get(category, ())
    if missing := [needed for needed in required if not hasattr(module, needed)]:
        names_missing = " and ".join(missing)
        raise ConfigError(f"{noun(category)} {name!r} does not define {names_missing}; define that in {path}")
    return module


def options(category: str, name: str) -> type:
    """Return the `Options` dataclass of a file, read without importing it; empty if it has none.

    Those of every dataset also have `labels`, `prefetch` and `threads`.
    """
    kind = _options(find_source(category, name), f"{category}.{name}")
    return _dataset_options(kind) if category == "datasets" else kind


def find_source(category: str, name: str, also: tuple[str, ...] = ()) -> Path:
    """Return the source file of a name; `ConfigError` with the valid names and those in `also`."""
    if outside_file.is_file_name(name):
        return outside_file.find_file(name)
    if "." in name:
        return _find_outside_module(name)
    if name not in names(category) and (category, name) not in _HIDDEN:
        hint = did_you_mean(closest_name(name, [*also, *names(category)]))
        valid = describe_choices(category, also)
        raise ConfigError(f"unknown {noun(category)} {name!r}; choose {valid}{hint}")
    package = _ROOT / category / name / "__init__.py"
    return package if package.is_file() else _ROOT / category / f"{name}{_suffix(category)}"


def describe_choices(category: str, also: tuple[str, ...] = ()) -> str:
    """Return the valid names of a category, for messages."""
    known = ", ".join([*also, *names(category)])
    choice = f"one of {known}" if known else f"a {noun(category)}"
    return f"{choice} (or a dotted path or .py file of your code)"


def closest_name(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the most similar known word, or None. least: similarity as in `get_close_matches`."""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), folded, 1, least)
    return folded[close[0]] if close else None


def did_you_mean(word: str | None) -> str:
    """Return the end of a message that suggests a word; empty for None."""
    return "" if word is None else f"; did you mean {word!r}?"


def _suffix(category: str) -> str:
    return ".yaml" if category in ("recipes", "presets") else ".py"


def _description(path: Path) -> str:
    """Return the first sentence of a docstring, or the first comment line of a recipe or preset."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".py":
        return text.partition("\n")[0].lstrip("# ")
    paragraph = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return _SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)[0]


def _find_outside_module(name: str) -> Path:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"cannot import {name!r}: it is not the dotted path of a module, such as mygan.nets")
    spec = _find_spec(name)
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"cannot import {name!r}: it has no .py source file; give a module that has one")
    return Path(spec.origin)


def _find_spec(name: str) -> ModuleSpec:
    """Return the module's spec; importing its packages may raise errors of their code."""
    spec = None
    missing = name
    try:
        with reraise_as_config_error(f"importing {name.rpartition('.')[0]}"):
            spec = importlib.util.find_spec(name)
    except ConfigError as error:
        missing = str(getattr(error.__cause__, "name", None))
        if not isinstance(error.__cause__, ModuleNotFoundError) or not f"{name}.".startswith(f"{missing}."):
            raise
    if spec is None:
        raise ConfigError(
            f"cannot import {name!r}: no module named {missing!r} on PYTHONPATH; add its parent "
            "folder, or give a .py file such as mine.py"
        )
    return spec


@cache  # one class per file, so that equal settings give equal configs
def _options(path: Path, name: str) -> type:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path} is not valid Python: {error}") from None
    readable = [node for node in tree.body if _is_readable(node)]
    module = ModuleType(f"paragan-options:{name}")
    module.__file__ = str(path)  # source of the fields' meanings
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        code = compile(ast.Module(readable, []), str(path), "exec")
        with reraise_as_config_error(f"{path}: `Options`"):
            exec(code, module.__dict__)  # noqa: S102 a file of paragan, or code the user named
            kind: type = module.__dict__.get("Options", _NoOptions)
            get_type_hints(kind, include_extras=True)
    except ConfigError as error:
        if not isinstance(error.__cause__, NameError):
            raise
        allowed = ", ".join(_READABLE[1:])
        problem = f"{path}: {error.__cause__}"
        raise ConfigError(f"{problem}; `Options` is read, not imported, and may use only {allowed}") from None
    if not is_dataclass(kind):
        raise ConfigError(f"{path}: `Options` is not a dataclass; put @dataclass(frozen=True) above it")
    return kind


@cache
def _dataset_options(kind: type) -> type:
    """Return the options with those of every dataset; any `labels` also takes False."""
    labels = next((one for one in fields(kind) if one.name == "labels"), None)
    hint: Any = bool
    default: Any = True
    if labels is None:
        meaning = "Whether the labels of the data are used."
    else:
        hint = get_type_hints(kind)["labels"] | Literal[False]
        default = labels.default
        meaning = meanings(kind).get("labels", "")
    meaning = f"{meaning} false: none, the run is unconditional.".lstrip()
    return make_dataclass(
        "Options",
        [
            ("labels", hint, field(default=default, metadata={MEANING: meaning})),
            ("prefetch", Natural | None, _unprinted_field(_PREFETCH)),
            ("threads", Annotated[int, Interval(ge=1, le=256)] | None, _unprinted_field(_THREADS)),
        ],
        bases=(kind,),
        frozen=kind.__dataclass_params__.frozen,  # type: ignore[attr-defined]
        namespace={"__doc__": kind.__doc__},
    )


def _unprinted_field(meaning: str) -> Any:
    """Return a field, None by default, outside the text that data fingerprints depend on."""
    return field(default=None, repr=False, metadata={MEANING: meaning})


def _is_readable(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in _READABLE for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in _READABLE or _SHARED_OPTIONS.fullmatch(node.module or "") is not None
    return isinstance(node, ast.ClassDef) and node.name == "Options"


@dataclass(frozen=True)
class _NoOptions:
    """Options of a file that defines none."""
