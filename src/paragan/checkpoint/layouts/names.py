"""Names of tensors in files of other projects: norms of weights as here, and tables of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

Weights = dict[str, Tensor]
Candidate = tuple[Weights, dict[str, object]]  # and the settings of the model
# A pattern of a whole name, and the new name: a template, or a function of the match.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_DIRECTION = {"weight_g": "weight_v", "original0": "original1"}  # of weight norm, by its gain
_RAW, _U, _V = (f"parametrizations.weight.{name}" for name in ("original", "0.u", "0.v"))
_SPECTRAL = {"weight_orig": _RAW, "weight_u": _U, "weight_v": _V}


def plain_weights(stored: Mapping[str, Tensor]) -> Weights:
    """Fold weight norm, in both of torch's forms, into `weight`; name the tensors of spectral norm as here."""
    weights: Weights = {}
    for name in stored:
        head, dot, last = name.rpartition(".")
        there = f"{head}{dot}"
        here = there.removeprefix("module.")  # of a data-parallel wrapper
        if last in _DIRECTION and f"{there}{_DIRECTION[last]}" in stored:
            v = stored[f"{there}{_DIRECTION[last]}"]
            scale = stored[name].flatten() / v.flatten(1).norm(dim=1)
            weights[f"{here.removesuffix('parametrizations.weight.')}weight"] = v * scale.view(-1, *[1] * (v.dim() - 1))
        elif last in _SPECTRAL and f"{there}weight_orig" in stored:
            weights[f"{here}{_SPECTRAL[last]}"] = stored[name]
        elif last not in _DIRECTION.values():
            weights[f"{here}{last}"] = stored[name]
    return weights


def renamed(weights: Weights, rules: Sequence[Rule]) -> Weights:
    """Rename by the first pattern that a name matches; other names stay, and are reported as not used."""

    def new_name(name: str) -> str:
        for pattern, new in rules:
            match = re.fullmatch(pattern, name)
            if match is not None:
                return new(match) if callable(new) else match.expand(new)
        return name

    return {new_name(name): value for name, value in weights.items()}


def numbers(weights: Weights, pattern: str) -> list[int]:
    """Return the numbers that the only group of a pattern has in the names, in their order, each once."""
    return sorted({int(match[1]) for match in (re.fullmatch(pattern, name) for name in weights) if match})
