"""Names of tensors in files of other projects: norms of weights as here, and tables of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
Candidate = tuple[Weights, dict[str, object]]  # and the settings of the model
# A pattern of a whole name, and the new name: a template, or a function of the match; empty: left out.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_DIRECTION = {"weight_g": "weight_v", "original0": "original1"}  # of weight norm, by its gain
_RAW, _U, _V = (f"parametrizations.weight.{name}" for name in ("original", "0.u", "0.v"))
_SPECTRAL = {"weight_orig": _RAW, "weight_u": _U, "weight_v": _V}
_COUNTERS = ("num_batches_tracked", "accumulation_counter", "sv0")


def plain_weights(stored: Mapping[str, Tensor]) -> Weights:
    """Fold weight norm into `weight`; name raw weights and vectors of spectral norm as here; leave out counters.

    Reads torch's forms of both norms, and that of BigGAN-PyTorch, which divides by u W v of the next u and v.
    """
    weights: Weights = {}
    for name in stored:
        head, dot, last = name.rpartition(".")
        lead = f"{head}{dot}"
        own = lead.removeprefix("module.")  # without a data-parallel wrapper
        if last in _DIRECTION and f"{lead}{_DIRECTION[last]}" in stored:
            v = stored[f"{lead}{_DIRECTION[last]}"]
            scale = stored[name].flatten() / v.flatten(1).norm(dim=1)
            weights[f"{own.removesuffix('parametrizations.weight.')}weight"] = v * scale.view(-1, *[1] * (v.dim() - 1))
        elif last in _SPECTRAL and f"{lead}weight_orig" in stored:
            weights[f"{own}{_SPECTRAL[last]}"] = stored[name]
        elif last == "u0":
            raw = stored[f"{lead}weight"]
            v = F.normalize(raw.flatten(1).T @ stored[name].flatten(), dim=0)
            weights |= {f"{own}{_RAW}": raw, f"{own}{_V}": v, f"{own}{_U}": F.normalize(raw.flatten(1) @ v, dim=0)}
        elif last not in (*_COUNTERS, *_DIRECTION.values()) and not (last == "weight" and f"{lead}u0" in stored):
            weights[f"{own}{last}"] = stored[name]
    return weights


def renamed(weights: Weights, rules: Sequence[Rule]) -> Weights:
    """Rename by the first pattern that a name matches; other names stay, and are reported as not used."""

    def new_name(name: str) -> str:
        for pattern, new in rules:
            match = re.fullmatch(pattern, name)
            if match is not None:
                return new(match) if callable(new) else match.expand(new)
        return name

    new_weights = {new_name(name): value for name, value in weights.items()}
    return {name: value for name, value in new_weights.items() if name}


def numbers(weights: Weights, pattern: str) -> list[int]:
    """Return the numbers that the only group of a pattern has in the names, in their order, each once."""
    return sorted({int(match[1]) for match in (re.fullmatch(pattern, name) for name in weights) if match})
