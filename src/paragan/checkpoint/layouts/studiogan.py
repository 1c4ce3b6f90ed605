"""PyTorch-StudioGAN: `model=G-….pth`, `model=G_ema-….pth` and `model=D-….pth` of the backbones resnet and big_resnet.

Those whose D has spectral norm. Norms of resnet's G multiply a one-hot class by a matrix, which may have spectral
norm; here a class has a row. Batch norm has another epsilon there: here the variance contains the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from paragan.checkpoint.layouts._names import (
    RAW,
    ProjectWeights,
    Rule,
    U,
    V,
    Weights,
    attention_setting,
    block_names,
    renamed,
)
from paragan.core.types import Side
from paragan.models.biggan import Options, large_plan

PROJECT = "PyTorch-StudioGAN (POSTECH-CVLab)"
KNOWN_BY = re.compile(r"(module\.)?blocks\.0\.0\.conv2d1\.")
_LAYERS = {"conv2d0": "shortcut", "conv2d1": "conv1", "conv2d2": "conv2", "sigma": "gain"}
_LAYERS |= {"conv1x1_theta": "query", "conv1x1_phi": "key", "conv1x1_g": "value", "conv1x1_attn": "out"}
_BLOCK = r"blocks\.(\d{1,3}\.0)\."
_BN = r"bn([12])\."
_GAIN = "blocks.0.0.bn1.gain."
_EPSILON = 1e-4 - 1e-5  # of batch norm, there and here
_UNIT = Options(width=1)  # of biggan: its plans are in multiples of the width
_CONTRASTIVE = ("contragan", "reacgan")
_ONLY_OF = {"attention": ("sagan", "biggan"), "flavour": ("biggan",)}  # other models have no such setting


def networks(weights: Weights) -> Iterator[ProjectWeights]:
    """Yield G or D, once for each model here that has this network; none of deep blocks."""
    if "blocks.0.0.conv2d3.bias" in weights:
        return
    values = {name: value.reshape(()) if name.endswith(".sigma") else value for name, value in weights.items()}
    values |= {name: value + _EPSILON for name, value in weights.items() if name.endswith("running_var")}
    names = block_names(weights, _BLOCK)
    attends = [f"blocks.{name}.sigma" in weights for name in names]
    models, network = (_generator if "linear0.bias" in weights else _discriminator)(values, names, attends)
    for model, width in models.items():
        settings = {"name": model, "width": width, "flavour": "studio", **network.settings}
        known = {key: value for key, value in settings.items() if model in _ONLY_OF.get(key, models)}
        yield replace(network, settings=known)


def _generator(weights: Weights, names: list[str], attends: list[bool]) -> tuple[dict[str, int], ProjectWeights]:
    """Return `model.width` of each model with this G, and G. names: of its blocks. attends: which are attention."""
    num_blocks = attends.count(False)
    side = 4 << num_blocks
    plan = large_plan(_UNIT, (3, side, side))
    width = len(weights["bn4.weight"]) // plan.g_widths[-1]
    latent = _num_inputs(weights, "linear0.")
    is_big = "shared.weight" in weights or _num_inputs(weights, _GAIN) == latent
    if is_big:
        classes, shared = weights["shared.weight"].shape if "shared.weight" in weights else (0, 0)
        models = dict.fromkeys(("biggan", *_CONTRASTIVE), width)
        settings = {"latent": latent * (num_blocks + 1), **({"shared": shared} if classes else {})}
    else:
        classes = _num_inputs(weights, _GAIN)
        weights = _with_rows(weights)
        # at 32 px the last map has 2 x `model.width` channels; `width` was divided by the 4 of biggan
        models = {"sagan" if f"conv2d5.{RAW}" in weights else "sngan": width * (2 if side == 32 else 1)}
        settings = {"latent": latent}
    return models, ProjectWeights(
        project=PROJECT,
        side=Side.G,
        tensors=renamed(weights, _generator_rules(names, is_big)),
        settings={**settings, **_labels(classes > 0), **attention_setting(Side.G, attends, side, plan.g_attention)},
        shape=(len(weights["conv2d5.bias"]), side, side),
        classes=classes,
    )


def _discriminator(weights: Weights, names: list[str], attends: list[bool]) -> tuple[dict[str, int], ProjectWeights]:
    num_blocks = attends.count(False)
    side = 2 << num_blocks  # one block more than halvings to 4 px; at 32 px four, of which two halve
    plan = large_plan(_UNIT, (3, side, side))
    width = len(weights["blocks.0.0.conv2d1.bias"])
    models = {"sngan": width, "sagan": width, "biggan": width // plan.d_widths[0]}
    has_classes = any(name.startswith(("embedding.", "linear2.")) for name in weights)
    settings = _labels(has_classes)
    if "linear2.bias" in weights:
        models = dict.fromkeys(_CONTRASTIVE, models["biggan"])
        settings["embed"] = len(weights["linear2.bias"])
    elif f"linear2.{RAW}" in weights:
        settings["head"] = "auxiliary"
    last = f"blocks.{len(names)}"
    rules: list[Rule] = [
        (r"linear1\.(.+)", rf"{last}.linear.\1"),
        (r"linear2\.(.+)", rf"{last}.{'project' if 'embed' in settings else 'classify'}.\1"),
        (r"embedding\.(.+)", rf"{last}.embed.\1"),
        *_block_rules(names, "", first=0),
    ]
    settings |= attention_setting(Side.D, attends, side, plan.d_attention)
    return models, ProjectWeights(project=PROJECT, side=Side.D, tensors=renamed(weights, rules), settings=settings)


def _labels(has_classes: bool) -> dict[str, object]:
    return {} if has_classes else {"conditional": False}


def _generator_rules(names: list[str], is_big: bool) -> list[Rule]:
    stem, block = ("blocks.0.stem", "block.") if is_big else ("blocks.0", "")
    last = f"blocks.{len(names) + 1}.{block}"
    return [
        (r"linear0\.(.+)", rf"{stem}.linear.\1"),
        (r"shared\.weight", "blocks.0.embed.weight"),
        (r"bn4\.running_(mean|var)", rf"{last}norm.norm.\1"),
        (r"bn4\.weight", rf"{last}norm.gain"),
        (r"bn4\.bias", rf"{last}norm.bias"),
        (r"conv2d5\.(.+)", rf"{last}conv.\1"),
        *_block_rules(names, block, first=1),
    ]


def _block_rules(names: list[str], block: str, first: int) -> list[Rule]:
    places = {name: f"blocks.{place}.{block}" for place, name in enumerate(names, start=first)}
    return [
        (rf"{_BLOCK}{_BN}(?:bn\.)?running_(mean|var)", lambda m: f"{places[m[1]]}norm{m[2]}.norm.{m[3]}"),
        (rf"{_BLOCK}{_BN}weight", lambda m: f"{places[m[1]]}norm{m[2]}.gain"),
        (rf"{_BLOCK}{_BN}(.+)", lambda m: f"{places[m[1]]}norm{m[2]}.{m[3]}"),
        (rf"{_BLOCK}(\w+)(.*)", lambda m: f"{places[m[1]]}{_LAYERS.get(m[2], m[2])}{m[3]}"),
    ]


def _with_rows(weights: Weights) -> Weights:
    """Return weights with a row per class for each norm: of 1 + W for its gain, of W for its bias."""
    rows: Weights = {}
    for name, value in weights.items():
        match = re.fullmatch(rf"({_BLOCK}{_BN}(gain|bias))\.(weight|{re.escape(RAW)})", name)
        if match:
            matrix = value if match[5] == "weight" else value / _largest_factor(weights, f"{match[1]}.")
            rows[match[1]] = (matrix + 1 if match[4] == "gain" else matrix).T
        elif not re.match(rf"{_BLOCK}{_BN}(gain|bias)\.", name):
            rows[name] = value
    return rows


def _largest_factor(weights: Weights, layer: str) -> Tensor:
    """Return the singular value by which spectral norm divides a layer, u W v."""
    return weights[f"{layer}{U}"] @ weights[f"{layer}{RAW}"].flatten(1) @ weights[f"{layer}{V}"]


def _num_inputs(weights: Weights, layer: str) -> int:
    stored = [weights[layer + name] for name in ("weight", RAW) if layer + name in weights]
    return stored[0].shape[1] if stored else 0
