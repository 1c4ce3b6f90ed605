"""Stand-ins for packages that a peer imports, does not use in a step, and this machine does not have."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Names(type):
    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        is_decorator = cls is Absent and len(arguments) == 1 and callable(arguments[0])
        return arguments[0] if is_decorator else super().__call__(*arguments, **keywords)

    def __getattr__(cls, name: str) -> type[Absent]:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class Absent(metaclass=_Names):
    """Any name of an absent package: a decorator, or a class to inherit from; no object can be made of it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise ImportError("a stand-in of benchmarks.compare was used; install the package")


class _Module(ModuleType):
    def __getattr__(self, name: str) -> type[Absent]:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class Finder(MetaPathFinder, Loader):
    """Finds `packages` and everything below them. Last on `sys.meta_path`, it hides nothing that is installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        is_below = any(f"{name}.".startswith(f"{package}.") for package in self.packages)
        return ModuleSpec(name, self, is_package=True) if is_below else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


def install(packages: Sequence[str]) -> tuple[str, ...]:
    """Provide what is absent of `packages`, in this process; return what that is."""
    absent = tuple(name for name in packages if importlib.util.find_spec(name) is None)
    sys.meta_path.append(Finder(absent))
    return absent
