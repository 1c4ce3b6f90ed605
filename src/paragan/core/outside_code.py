"""Code outside paragan: a module by its dotted path, or a .py file next to the recipe that names it.

Its failures become one-line errors with the place in the user's file. A run records the sha256 of the code that it
used. By that record, `is_recorded` decides what may be imported without `--trust`, and a resume warns of `changed_code`
and takes a setting that names the same .py file at another place as equal (`has_moved`).
"""

import hashlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from types import ModuleType

from paragan.core.errors import ConfigError, ParaganError

# starts of the file names of code that is not the user's; "<" of "<string>" and "<frozen importlib._bootstrap>"
_NOT_OUTSIDE = (str(Path(__file__).resolve().parent.parent), sysconfig.get_path("stdlib"), "<")
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
        raise ConfigError(
            f"{name} does not exist; give the path of a .py file, relative to the recipe's folder; "
            "for an exported file, or a run whose code has moved: --code DIR"
        )


def code_fingerprints(names: Iterable[str]) -> dict[str, str]:
    """Return the sha256 of each .py file among names of outside code, and of each module and its packages."""
    files = {part: path for name in names for part, path in source_files(name).items()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


def changed_code(names: Iterable[str], used: Mapping[str, str]) -> list[str]:
    """Return the files of outside code that have another content than in `used`, whose sha256 are by path or module.

    A file that the run has not used before, such as another writer, is new, not changed. Files are known by their last
    names, as the run's code may have moved.
    """
    known = {os.path.basename(name) for name in used}
    now = code_fingerprints(names).items()
    return [name for name, sha256 in now if os.path.basename(name) in known and sha256 not in used.values()]


def source_files(name: str) -> dict[str, Path]:
    """Return the files that importing a name runs, by their names; empty if there are none. Nothing is imported.

    A .py file is itself. A module has also the `__init__.py` of its packages: `mygan` and `mygan.nets`.
    """
    if is_file_name(name):
        return {name: Path(name)} if os.path.isfile(name) else {}
    if not _is_dotted_path(name):
        return {}
    files: dict[str, Path] = {}
    folders = [Path(folder) for folder in sys.path]
    part = ""
    for word in name.split("."):
        part = f"{part}.{word}" if part else word
        places = [place for folder in folders for place in (folder / word / "__init__.py", folder / f"{word}.py")]
        first = next((place for place in places if place.is_file()), None)
        if first is not None:
            files[part] = first
            folders = [first.parent] if first.name == "__init__.py" else []
        else:
            folders = [folder / word for folder in folders if (folder / word).is_dir()]  # packages without __init__.py
    return files if name in files else {}


@dataclass(frozen=True)
class CodeFolder:
    """Where the outside code of a run lies now (`--code`), and which of it may be imported.

    `name in code_folder` is true for a .py file or module that the run has used, by its name and content. Modules
    that such a file imports are not compared. trust: true for every name; None: decided by the config that names the
    code, trusted unless a run wrote it. used: sha256 by the path or dotted path at that time, as the run recorded them.
    """

    folder: Path
    trust: bool | None = False
    used: Mapping[str, str] = field(default_factory=dict)

    def locate(self, path: str) -> str:
        """Return where a .py file lies in the folder, also below it as before; the path as it is if it does not."""
        parts = Path(path).parts
        places = [self.folder.resolve().joinpath(*parts[start:]) for start in range(1, len(parts))]
        return next((str(place) for place in places if place.is_file()), path)

    def require(self, name: str) -> None:
        """Raise `ConfigError` unless the .py file, or the file of a module, exists."""
        if source_files(name):
            return
        if is_file_name(name):
            raise ConfigError(
                f"{name} does not exist, and --code {self.folder} holds no {os.path.basename(name)}; pass the folder "
                "that holds it"
            )
        package = name.partition(".")[0]
        if _is_dotted_path(name) and importlib.util.find_spec(package) is None:  # else the import names what is missing
            file = f"{name.replace('.', '/')}.py"
            raise ConfigError(
                f"there is no {file} in --code {self.folder}, or elsewhere on PYTHONPATH; pass the folder that "
                f"{package} lies in"
            )

    def __contains__(self, name: object) -> bool:
        return bool(self.trust) or (isinstance(name, str) and is_recorded(name, self.used))


def has_moved(before: str, now: str, used: Mapping[str, str]) -> bool:
    """Return whether the .py file `now` is the one that was `before`, of which `used` has the sha256.

    A run folder that has moved names its code by other paths than those that it recorded, with the same end: those of
    `used` that share most of their last parts with `before` are meant.
    """
    common = {path: _num_common_parts(before, path) for path in used}
    closest = {path: used[path] for path, count in common.items() if count and count == max(common.values())}
    return is_recorded(now, closest)


def _num_common_parts(a: str, b: str) -> int:
    pairs = zip(reversed(Path(a).parts), reversed(Path(b).parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def is_recorded(name: str, used: Mapping[str, str]) -> bool:
    """Return whether `used` has the sha256 of a .py file, at any path, or of a module and its packages."""
    now = code_fingerprints([name])
    if not is_file_name(name):
        return name in now and all(used.get(part) == sha256 for part, sha256 in now.items())
    recorded = {sha256 for path, sha256 in used.items() if os.path.basename(path) == os.path.basename(name)}
    return not recorded.isdisjoint(now.values())


def import_outside(name: str) -> ModuleType:
    """Import a dotted path, or a .py file; `ConfigError` if its code raises an error."""
    with reraise_as_config_error(f"importing {name}"):
        return _import_file(Path(name)) if is_file_name(name) else importlib.import_module(name)


@contextmanager
def reraise_outside_errors(action: str, kind: type[ParaganError], names: str = "") -> Iterator[None]:
    """Turn failures inside, except paragan's and `MemoryError`, into a one-line error of this kind.

    names: what the code may read, for errors about a name that does not exist.
    """
    try:
        yield
    except (ParaganError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:_MAX_CHARACTERS]
        hint = names if isinstance(error, AttributeError | KeyError) else ""
        if "more than 1 value per channel" in reason:  # batch norm of torch
            hint = "; batch norm needs more samples: increase train.batch, or use fewer ranks or micro_batches"
        raise kind(f"{action} raised {type(error).__name__}: {reason}{_location(error)}{hint}") from error


def reraise_as_config_error(action: str, names: str = "") -> AbstractContextManager[None]:
    """Turn failures inside into a `ConfigError`, as `reraise_outside_errors`."""
    return reraise_outside_errors(action, ConfigError, names)


def is_outside_file(file: str) -> bool:
    """Return whether a file, as a stack names it, belongs neither to paragan nor to a library."""
    return not file.startswith(_NOT_OUTSIDE) and "site-packages" not in file


def _location(error: Exception) -> str:
    """Return the last line of the traceback that is the user's."""
    outside = [frame for frame in traceback.extract_tb(error.__traceback__) if is_outside_file(frame.filename)]
    return f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""


def _is_dotted_path(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _find_module(name: str) -> Path:
    """Return the source of a module; importing its packages may raise errors of their code."""
    if not _is_dotted_path(name):
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
            f"cannot import {name!r}: no module named {missing!r} on PYTHONPATH; add its parent folder (--code DIR, "
            "for an exported file, or a run whose code has moved), or give a .py file such as mine.py"
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
