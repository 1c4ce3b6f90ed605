"""Nested values of tensors: tuples, lists, mappings and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return a copy of the nest with `function` applied to every tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: map_tensors(function, value) for name, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, value) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        fields = {name: map_tensors(function, getattr(tree, name)) for name in names}
        return dataclasses.replace(tree, **fields)
    return tree
