"""Registry of files: `model.name: biggan` is `models/biggan.py`.

A category is a folder of such files: models, losses, penalties, … An extension adds files in a folder of the same
name: `extensions/large_models/parallel/tensor.py` is `strategy: tensor`. Outside code is a dotted path or a .py file.
A file may have a frozen dataclass `Options`. It is *read* from the source, not imported, so that help and config
errors are fast and do not import torch; the class may therefore use only builtins, dataclasses, typing,
`core.option_types`, `core.weight_schedule` and the `_options` of its folder.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from paragan.core import from_memory, outside_code
from paragan.core.errors import ConfigError
from paragan.core.option_types import TORCH_OPTIMISERS, Choice, DatasetOptions, LabelOptions
from paragan.core.outside_code import reraise_as_config_error

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")  # not in "et al. 2018"
_ROOT = Path(__file__).resolve().parent.parent
_READABLE = (
    *("__future__", "dataclasses", "typing", "collections.abc"),
    *("paragan.core.option_types", "paragan.core.weight_schedule"),
)
_SHARED_OPTIONS = re.compile(r"paragan(\.\w+)+\._options")  # shared, without torch
# category -> name of one of its files, for messages, and the names that outside code must define
_CATEGORIES: dict[str, tuple[str, ...]] = {
    "models": ("model", "Generator", "Discriminator"),
    "losses": ("loss", "loss"),
    "penalties": ("penalty", "Penalty"),
    "balancers": ("balancer", "Balancer"),
    "adapters": ("adapter", "Adapter"),
    "augment": ("augmentation", "Augment"),
    "datasets": ("dataset", "source"),
    "schemes": ("scheme",),
    "parallel": ("strategy", "Strategy"),
    "optim": ("optimizer", "Optimizer"),
    "metrics": ("metric", "Metric"),
    "features": ("feature extractor", "prepare"),
    "writers": ("writer", "Writer"),
    "recipes": ("recipe",),
    "presets": ("preset",),
}
_HELPERS = ("base", "preparation")  # sub-packages of what the files of a category are built from, or are used by
SYNONYMS = {"strategies": "parallel", "optimizers": "optim", "optimisers": "optim"}  # of categories
_MAX_RECIPE_BYTES = 1 << 20


def categories() -> list[str]:
    """Return the folders whose files are chosen by name."""
    return list(_CATEGORIES)


def noun(category: str) -> str:
    """Return the name of one file of a category: `losses` -> loss."""
    return _CATEGORIES[category][0]


def names(category: str) -> list[str]:
    """Return the names of the public files of a category, sorted."""
    return sorted(_sources(category))


@cache
def _sources(category: str) -> dict[str, Path]:
    """Return the public files of a category by name: a file or a package, of paragan or of an extension."""
    paths: list[Path] = []
    pattern = "*.yaml" if category in ("recipes", "presets") else "*.py"
    for folder in (_ROOT / category, *_ROOT.glob(f"extensions/*/{category}")):
        paths += [path for path in folder.glob(pattern) if path.name != "__init__.py"]
        paths += folder.glob("*/__init__.py")
    named = {path.parent.name if path.name == "__init__.py" else path.stem: path for path in paths}
    return {name: path for name, path in named.items() if not name.startswith("_") and name not in _HELPERS}


def descriptions(category: str) -> dict[str, str]:
    """Return names with one sentence each, not imported; `ConfigError` for an unknown category."""
    known = categories()
    category = SYNONYMS.get(category, category)
    if category not in known:
        meant = did_you_mean(closest_name(category, known))
        raise ConfigError(f"unknown category {category!r}; choose one of {', '.join(known)}{meant}")
    sources = dict(sorted(_sources(category).items()))
    if category == "recipes":
        sources |= {str(path): path for path in _local_recipes()}
    of_torch = {kind: f"torch.optim.{kind}" for kind in TORCH_OPTIMISERS if category == "optim"}
    return of_torch | {name: _description(path) for name, path in sources.items()}


def _local_recipes() -> list[Path]:
    """Return the recipes in the working directory: YAML files with sections `model` and `loss`."""
    paths = sorted(p for p in Path().glob("*.yaml") if p.is_file() and p.stat().st_size < _MAX_RECIPE_BYTES)
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in paths}
    return [path for path, text in texts.items() if {"model", "loss"} <= set(re.findall(r"^(\w+):", text, re.M))]


def load_module(category: str, name: str) -> ModuleType:
    """Import a file of a category; `ConfigError` if outside code fails or lacks a required name."""
    path = find_source(category, name)
    if "." not in name:
        parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
        return importlib.import_module(".".join(("paragan", *parts[len(_ROOT.parts) :])))
    module = outside_code.import_outside(name)
    _, *required = _CATEGORIES[category]
    missing = [needed for needed in required if not hasattr(module, needed)]
    if not missing:
        missing = [f"{needed}.{member}" for needed in required for member in _undefined(getattr(module, needed))]
    if missing:
        raise ConfigError(
            f"{noun(category)} {name!r} does not define {' and '.join(missing)}; add what is missing to {path}"
        )
    return module


def _undefined(value: object) -> list[str]:
    """Return what a class has to define and does not: abstract methods, and class variables without a value."""
    if not isinstance(value, type):
        return []
    hints = {name: str(hint) for base in value.__mro__ for name, hint in inspect.get_annotations(base).items()}
    variables = {name for name, hint in hints.items() if "ClassVar" in hint and not hasattr(value, name)}
    return sorted(variables | getattr(value, "__abstractmethods__", frozenset()))


def load_chosen(category: str, choice: Choice) -> ModuleType:
    """Import the file of a choice, as `load_module`; `ConfigError` for what a program has to pass again."""
    if _is_record(category, choice.name):
        raise ConfigError(choice.options.missing())
    return load_module(category, choice.name)


def options(category: str, name: str) -> type:
    """Return the `Options` dataclass of a file, read without importing it; empty if it has none.

    Those of every dataset also have the fields of `DatasetOptions`. `from_memory`: the record of what a program passed.
    """
    if _is_record(category, name):
        kind: type = from_memory.RECORDS[category]
    else:
        kind = _options(find_source(category, name), f"{category}.{name}")
    return _dataset_options(kind) if category == "datasets" else kind


def find_source(category: str, name: str, also: tuple[str, ...] = ()) -> Path:
    """Return the source file of a name; `ConfigError` with the valid names and those in `also`."""
    if "." in name:
        return outside_code.find_outside_source(name)
    if _is_record(category, name):
        return Path(from_memory.__file__)
    sources = _sources(category)
    if name not in sources:
        hint = did_you_mean(closest_name(name, [*also, *sorted(sources)]))
        valid = describe_choices(category, also)
        raise ConfigError(f"unknown {noun(category)} {name!r}; choose {valid}{hint}")
    return sources[name]


def summary(category: str, name: str) -> str:
    """Return the first paragraph of the docstring of a category's file."""
    return _first_paragraph(find_source(category, name))


def describe_choices(category: str, also: tuple[str, ...] = ()) -> str:
    """Return the valid names of a category, for messages."""
    known = ", ".join([*also, *names(category)])
    choice = f"one of {known}" if known else f"a {noun(category)}"
    return f"{choice} (or a dotted path or .py file of your code)"


def closest_name(word: str, known: Iterable[str], min_similarity: float = 0.6) -> str | None:
    """Return the most similar known word, or None. min_similarity: as in `get_close_matches`.

    A similar word that the given one continues is preferred: `hinge` for `hinge_loss`.
    """
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), folded, 3, min_similarity)
    starts = [name for name in close if re.match(rf"{re.escape(name)}[-_]", word.casefold())]
    return folded[[*starts, *close][0]] if close else None


def did_you_mean(word: str | None) -> str:
    """Return the end of a message that suggests a word; empty for None."""
    return "" if word is None else f"; did you mean {word!r}?"


def _is_record(category: str, name: str) -> bool:
    return name == from_memory.FROM_MEMORY and category in from_memory.RECORDS


def _description(path: Path) -> str:
    """Return the first sentence of a docstring, or the first comment line of a recipe or preset."""
    if path.suffix == ".py":
        return _SENTENCE_END.split(_first_paragraph(path), maxsplit=1)[0]
    return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].lstrip("# ")


def _first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


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
    code = compile(ast.Module(readable, []), str(path), "exec")
    with reraise_as_config_error(f"{path}: `Options`"):
        try:
            exec(code, module.__dict__)  # noqa: S102 a file of paragan, or code the user named
            kind: type = module.__dict__.get("Options", _NoOptions)
            get_type_hints(kind, include_extras=True)
        except NameError as error:
            allowed = ", ".join(_READABLE[1:])
            raise ConfigError(f"{path}: {error}; `Options` is read, not imported, and may use only {allowed}") from None
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"{path}: `Options` is not a frozen dataclass; put @dataclass(frozen=True) above it")
    return kind


@cache
def _dataset_options(kind: type) -> type:
    added = LabelOptions if any(field.name == "labels" for field in fields(kind)) else DatasetOptions
    return make_dataclass("Options", [], bases=(added, kind), frozen=True, namespace={"__doc__": kind.__doc__})


def _is_readable(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in _READABLE for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in _READABLE or _SHARED_OPTIONS.fullmatch(node.module or "") is not None
    return isinstance(node, ast.ClassDef) and node.name == "Options"


@dataclass(frozen=True)
class _NoOptions:
    """Options of a file that defines none."""


def has_extension(name: str) -> bool:
    """Return whether this installation has an extension."""
    return (_ROOT / "extensions" / name).is_dir()


def check_extension(name: str, setting: str) -> None:
    """Raise `ConfigError` if an extension was removed. setting: that needs it, in the words of the user."""
    if not has_extension(name):
        raise ConfigError(f"{setting}: this installation of paragan was made without extensions/{name}; leave it out")
