"""Names of tensors in files of other projects: norms of weights as here, and tables of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from paragan.core.layout import Shape
from paragan.core.types import Side

Weights = dict[str, Tensor]
# A pattern of a whole name, and the new name: a template, or a function of the match; empty: left out.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]

_DIRECTION = {"weight_g": "weight_v", "original0": "original1"}  # of weight norm, by its gain, in either form
RAW = "parametrizations.weight.original"
U = "parametrizations.weight.0.u"
V = "parametrizations.weight.0.v"
_SPECTRAL = {"weight_orig": RAW, "weight_u": U, "weight_v": V}  # of torch.nn.utils.spectral_norm
_PARAMETRISED = {"_u": "u", "_v": "v"}  # of its form in `parametrizations`, whose raw weight has the name of ours
_COUNTERS = ("num_batches_tracked", "accumulation_counter", "sv0")


@dataclass(frozen=True, kw_only=True)
class ProjectWeights:
    """Tensors by the names of a player's network here.

    settings: of the model, with its `name`. shape: of a sample of G; empty for D. classes: of G. condition: channels
    of the images that samples are made from. direction: `a_to_b` for a file with one of the two translators that
    CycleGAN's generator has; empty: the weights are of the whole network. data: settings of the data in the project's
    published configurations, which no file has.
    """

    project: str
    side: Side
    tensors: Weights
    settings: Mapping[str, object]
    shape: Shape = ()
    classes: int = 0
    condition: int | None = None
    direction: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


def plain_weights(stored: Mapping[str, Tensor]) -> Weights:
    """Return the weights of layers as here: without weight norm, spectral norm under our names, without counters.

    | a layer in the file                                         | here                                       |
    |-------------------------------------------------------------|--------------------------------------------|
    | weight_g, weight_v, or parametrizations.weight.original0, 1 | weight: g v / norm of v                    |
    | weight_orig, weight_u, weight_v                             | RAW, U, V                                  |
    | parametrizations.weight: original, 0._u, 0._v               | RAW, U, V                                  |
    | weight, u0 (BigGAN-PyTorch)                                 | RAW, U, V of the power iteration after u0, |
    |                                                             | by whose u W v it divides                  |
    """
    weights: Weights = {}
    for name in stored:
        layer, dot, last = name.rpartition(".")
        prefix = f"{layer}{dot}"
        new_prefix = prefix.removeprefix("module.")  # without a data-parallel wrapper
        has_u0 = last == "weight" and f"{prefix}u0" in stored  # is read with its u0
        if last in _DIRECTION and f"{prefix}{_DIRECTION[last]}" in stored:
            v = stored[f"{prefix}{_DIRECTION[last]}"]
            scale = stored[name].flatten() / v.flatten(1).norm(dim=1)
            new_name = f"{new_prefix.removesuffix('parametrizations.weight.')}weight"
            weights[new_name] = v * scale.view(-1, *[1] * (v.dim() - 1))
        elif last in _SPECTRAL and f"{prefix}weight_orig" in stored:
            weights[f"{new_prefix}{_SPECTRAL[last]}"] = stored[name]
        elif last in _PARAMETRISED and prefix.endswith("parametrizations.weight.0."):
            weights[f"{new_prefix}{_PARAMETRISED[last]}"] = stored[name]
        elif last == "u0":
            raw = stored[f"{prefix}weight"]
            v = F.normalize(raw.flatten(1).T @ stored[name].flatten(), dim=0)
            weights[f"{new_prefix}{RAW}"] = raw
            weights[f"{new_prefix}{V}"] = v
            weights[f"{new_prefix}{U}"] = F.normalize(raw.flatten(1) @ v, dim=0)
        elif last not in (*_COUNTERS, *_DIRECTION.values()) and not has_u0:
            weights[f"{new_prefix}{last}"] = stored[name]
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


def block_names(weights: Weights, pattern: str) -> list[str]:
    """Return the numbers `i.j` of blocks in lists, in their order. pattern: of their names, with these as its group."""
    names = {match[1] for match in (re.match(pattern, name) for name in weights) if match}
    return sorted(names, key=lambda name: [int(number) for number in name.split(".")])


def attention_setting(side: Side, attends: Sequence[bool], image: int, default: tuple[int, ...]) -> dict[str, object]:
    """Return `model.attention` as an entry of settings; none where it is the default.

    attends: for each block whether it is attention; the others double G's maps of 4 px, or halve D's of `image`
    px. default: sides of the maps with attention here.
    """
    resamplings = [attends[:place].count(False) for place, is_attention in enumerate(attends) if is_attention]
    map_sides = tuple(4 << number if side is Side.G else image >> number for number in resamplings)
    if map_sides == default:
        return {}
    return {"attention": {side.value: map_sides if len(map_sides) > 1 else next(iter(map_sides), None)}}
