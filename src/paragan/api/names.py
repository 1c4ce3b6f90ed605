"""Names that a config may use, as lists for a program; `paragan list` describes them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from paragan.core import registry


def list_names(category: str, pattern: str = "*") -> list[str]:
    """Return the names of a category, such as `losses` or `schemes`, sorted.

    pattern: of the shell, such as `relativistic*`. Raises `ConfigError` for an unknown category.
    """
    return [name for name in registry.descriptions(category) if fnmatchcase(name, pattern)]


def list_models(pattern: str = "*") -> list[str]:
    """Return the values of `model.name`, sorted. pattern: of the shell, such as `*gan*`."""
    return list_names("models", pattern)


def list_recipes(pattern: str = "*") -> list[str]:
    """Return the recipes that `train` takes, sorted. pattern: of the shell, such as `*-cifar10`."""
    return list_names("recipes", pattern)
