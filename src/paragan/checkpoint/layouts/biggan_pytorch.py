"""BigGAN-PyTorch: `G.pth`, `G_ema.pth` and `D.pth`, with hierarchical latents and a shared embedding."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paragan.checkpoint.layouts._names import (
    RAW,
    ProjectWeights,
    Rule,
    Weights,
    attention_setting,
    block_names,
    renamed,
)
from paragan.core.types import Side
from paragan.models.biggan import Options, large_plan

PROJECT = "BigGAN-PyTorch (ajbrock)"
KNOWN_BY = re.compile(r"(module\.)?blocks\.0\.0\.conv1\.u0")
_LAYERS = {"conv_sc": "shortcut", "theta": "query", "phi": "key", "g": "value", "o": "out", "gamma": "gain"}
_STATISTICS = r"(?:bn\.)?(?:stored|running)_(mean|var)"  # plain, or inside as `bn`: `myBN` or SyncBN
_BLOCK = r"blocks\.(\d{1,3}\.\d)\."
_UNIT = Options(width=1, flavour="brock")  # its plans are `G_arch` and `D_arch` there, in multiples of `ch`
_SETTINGS = {"name": "biggan", "flavour": "brock"}


def networks(weights: Weights) -> Iterator[ProjectWeights]:
    """Yield G or D."""
    names = block_names(weights, _BLOCK)
    attends = [f"blocks.{name}.gamma" in weights for name in names]
    stages = attends.count(False)
    if "output_layer.0.gain" not in weights:
        image = 2 << stages  # one block more than halvings to 4 px; at 32 px four, of which two halve
        plan = large_plan(_UNIT, (3, image, image))
        width = len(weights[f"blocks.0.0.conv1.{RAW}"]) // plan.d_widths[0]
        head: Rule = (r"(linear|embed)\.(.+)", rf"blocks.{len(names)}.\1.\2")
        tensors = renamed(weights, [head, *_block_rules(names, "", first=0)])
        settings = {**_SETTINGS, "width": width, **attention_setting(Side.D, attends, image, plan.d_attention)}
        yield ProjectWeights(project=PROJECT, side=Side.D, tensors=tensors, settings=settings)
        return
    image = 4 << stages
    plan = large_plan(_UNIT, (3, image, image))
    last = f"blocks.{len(names) + 1}.block"
    rules: list[Rule] = [
        (r"shared\.weight", "blocks.0.embed.weight"),
        (r"linear\.(.+)", r"blocks.0.stem.linear.\1"),
        (rf"output_layer\.0\.{_STATISTICS}", rf"{last}.norm.norm.\1"),
        (r"output_layer\.0\.(\w+)", rf"{last}.norm.\1"),
        (r"output_layer\.2\.(.+)", rf"{last}.conv.\1"),
        *_block_rules(names, "block.", first=1),
    ]
    width = len(weights["output_layer.0.gain"]) // plan.g_widths[-1]
    latent = weights[f"linear.{RAW}"].shape[1] * (stages + 1)  # a chunk of z for the stem and for each block
    classes, shared = weights["shared.weight"].shape
    sizes = {"width": width, "latent": latent, "shared": shared}
    yield ProjectWeights(
        project=PROJECT,
        side=Side.G,
        tensors=renamed(weights, rules),
        settings={**_SETTINGS, **sizes, **attention_setting(Side.G, attends, image, plan.g_attention)},
        shape=(len(weights["output_layer.2.bias"]), image, image),
        classes=classes,
    )


def _block_rules(names: list[str], lead: str, first: int) -> list[Rule]:
    """Return the rules of blocks, which are one list here, attention after its block."""
    places = {name: f"blocks.{place}.{lead}" for place, name in enumerate(names, start=first)}
    return [
        (rf"{_BLOCK}bn([12])\.{_STATISTICS}", lambda m: f"{places[m[1]]}norm{m[2]}.norm.{m[3]}"),
        (rf"{_BLOCK}bn([12])\.(.+)", lambda m: f"{places[m[1]]}norm{m[2]}.{m[3]}"),
        (rf"{_BLOCK}(\w+)(.*)", lambda m: f"{places[m[1]]}{_LAYERS.get(m[2], m[2])}{m[3]}"),
    ]
