"""pytorch-CycleGAN-and-pix2pix: `*_net_G.pth`, `*_net_D.pth`, and of CycleGAN those of A and of B, in this order.

G is a U-Net (pix2pix) or a chain of residual blocks (CycleGAN), D is PatchGAN. Instance norm has no gain and
bias there. A bias in front of it has no effect; here there is none in CycleGAN's D.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch

from paragan.checkpoint.layouts._names import ProjectWeights, Rule, Weights, numbers, renamed
from paragan.core.types import Side

PROJECT = "pytorch-CycleGAN-and-pix2pix (junyanz)"
KNOWN_BY = re.compile(r"([12]/)?(module\.)?model\.(model\.0|0|1)\.weight")
_N = r"(\d{1,3})"
_NORM = {"weight": "gain", "running_mean": "norm.mean", "running_var": "norm.var"}
_UNET = r"model\.model\.1((?:\.model\.3)*)\.model\.([1-6])\.(\w+)"  # of nested blocks: depth, and place in one
_SIDE = 64  # of an image, for want of the one in training: its networks take any
_Network = tuple[Weights, dict[str, object]]  # and settings of the model
_STATISTICS: Rule = (r".+\.running_\w+", "")  # of instance norm, in old files; nothing reads them


def is_translation(names: frozenset[str]) -> bool:
    """Return whether these are the names of a network that CycleGAN has twice."""
    return {"model.0.weight", "model.2.weight"} <= names or "model.10.conv_block.1.weight" in names


def networks(weights: Weights) -> Iterator[ProjectWeights]:
    """Yield pix2pix's and CycleGAN's networks that these may be; two files have `1/` and `2/` in front of names.

    A U-Net: pix2pix's G. A chain of residual blocks: one direction by itself, or a part of CycleGAN's G; two: that G.
    A PatchGAN: a part of CycleGAN's D, or pix2pix's D; two: CycleGAN's D.
    """
    if "model.model.0.weight" in weights:
        yield _unet(weights)
        return
    halves = [{name[2:]: value for name, value in weights.items() if name.startswith(n)} for n in ("1/", "2/")]
    files = [half for half in halves if half] or [weights]
    is_d = "model.0.weight" in files[0]
    convert = _patches if is_d else _translator
    # G_A makes B of A, and D_A judges B.
    nets = [convert(file, f"{'of' if is_d else 'to'}_{side}.") for file, side in zip(files, "ba", strict=False)]
    tensors = {name: value for converted, _ in nets for name, value in converted.items()}
    settings = {"name": "cyclegan", **nets[0][1]}
    cyclegan = ProjectWeights(project=PROJECT, side=Side.D if is_d else Side.G, tensors=tensors, settings=settings)
    if not is_d:
        channels = files[0]["model.1.weight"].shape[1]
        if len(files) == 1:
            alone, _ = _translator(files[0], "translator.")
            shape = (channels, _SIDE, _SIDE)
            yield replace(cyclegan, tensors=alone, shape=shape, condition=channels, direction="a_to_b")
        yield replace(cyclegan, shape=(channels, _SIDE, 2 * _SIDE))  # images of A and B lie side by side
        return
    yield cyclegan
    if len(files) == 1:
        tensors, settings = _patches(files[0], "blocks.")
        norm = "batch" if "model.3.weight" in files[0] else "instance"
        yield replace(cyclegan, tensors=tensors, settings={"name": "pix2pix", "width": settings["width"], "norm": norm})


def _unet(weights: Weights) -> ProjectWeights:
    matches = (re.fullmatch(_UNET, name) for name in weights)
    last = max(match[1].count(".model.3") + 1 for match in matches if match)  # depth of the innermost block

    def place(match: re.Match[str]) -> str:
        depth, part = match[1].count(".model.3") + 1, int(match[2])
        # The innermost block has neither a block inside nor a norm on the way down.
        ups = {3: "conv", 4: "norm"} if depth == last else {5: "conv", 6: "norm"}
        kind = ups.get(part) or ("conv" if part == 1 else "norm")
        block = 2 * last + 1 - depth if part in ups else depth  # here: all ways down, from outside in, then up
        return f"blocks.{block}.{kind}.{_NORM.get(match[3], match[3]) if kind == 'norm' else match[3]}"

    rules: list[Rule] = [
        (r"model\.model\.0\.(.+)", r"blocks.0.conv.\1"),
        (r"model\.model\.3\.(.+)", rf"blocks.{2 * last + 1}.conv.\1"),
        (_UNET, place),
    ]
    tensors = renamed(weights, rules)
    for block in range(last + 2, 2 * last + 2):  # the map from inside comes after the skip map there, first here
        name = f"blocks.{block}.conv.weight"
        tensors[name] = torch.cat(tensors[name].chunk(2)[::-1])
    norm = "batch" if "model.model.1.model.2.weight" in weights else "instance"
    width, condition, *_ = weights["model.model.0.weight"].shape
    return ProjectWeights(
        project=PROJECT,
        side=Side.G,
        tensors=tensors,
        settings={"name": "pix2pix", "width": width, "norm": norm},
        shape=(weights["model.model.3.weight"].shape[1], 2 << last, 2 << last),
        condition=condition,
    )


def _translator(weights: Weights, lead: str) -> _Network:
    rules: list[Rule] = [
        *([] if "model.2.weight" in weights else [_STATISTICS]),
        (rf"model\.{_N}\.conv_block\.([15])\.(\w+)", rf"{lead}\1.layers.\2.\3"),
        (rf"model\.{_N}\.conv_block\.6\.(\w+)", rf"{lead}\1.layers.5.\2"),  # with dropout
        (rf"model\.{_N}\.(\w+)", rf"{lead}\1.\2"),
    ]
    blocks = len(numbers(weights, rf"model\.{_N}\.conv_block\.1\.weight"))
    return renamed(weights, rules), {"width": len(weights["model.1.weight"]), "blocks": blocks}


def _patches(weights: Weights, lead: str) -> _Network:
    layers = numbers(weights, rf"model\.{_N}\.weight")
    convs = [layer for layer in layers if weights[f"model.{layer}.weight"].dim() == 4]

    def place(match: re.Match[str]) -> str:
        layer, name = int(match[1]), match[2]
        if layer in convs:
            return f"{lead}{convs.index(layer)}.conv.{name}"
        return f"{lead}{convs.index(layer - 1)}.norm.{_NORM.get(name, name)}"

    without_effect = rf"model\.({'|'.join(map(str, convs[1:-1]))})\.bias"
    is_instance = "model.3.weight" not in weights
    rules = [*([_STATISTICS, (without_effect, "")] if is_instance else []), (rf"model\.{_N}\.(\w+)", place)]
    return renamed(weights, rules), {"width": len(weights["model.0.weight"]), "d_halvings": len(convs) - 2}
