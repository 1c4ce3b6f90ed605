"""BigGAN-PyTorch: `G.pth`, `G_ema.pth` and `D.pth`, with hierarchical latents and a shared embedding."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paragan.checkpoint.layouts.names import Candidate, Rule, Weights, numbers, renamed

PROJECT = "BigGAN-PyTorch (ajbrock)"
KNOWN_BY = re.compile(r"(module\.)?blocks\.0\.0\.conv1\.u0")
_LAYERS = {"conv_sc": "shortcut", "theta": "query", "phi": "key", "g": "value", "o": "out", "gamma": "gain"}
_STATISTICS = r"(?:bn\.)?(?:stored|running)_(mean|var)"  # of its three kinds of batch norm
_BLOCK = r"blocks\.(\d{1,3}\.\d)\."
_RAW = "parametrizations.weight.original"


def biggan_networks(weights: Weights) -> Iterator[Candidate]:
    """Yield G or D."""
    stages = len(numbers(weights, rf"blocks\.(\d{{1,3}})\.0\.conv1\.{_RAW}"))
    settings = {"name": "biggan", "flavour": "brock"}
    if "output_layer.0.gain" not in weights:
        rules, last = _block_rules(weights, "", first=0)
        head: Rule = (r"(linear|embed)\.(.+)", rf"blocks.{last}.\1.\2")
        width = len(weights[f"blocks.0.0.conv1.{_RAW}"]) // (4 if stages == 4 else 1)  # 4 blocks: 32 px
        yield renamed(weights, [head, *rules]), {**settings, "width": width}
        return
    rules, last = _block_rules(weights, "block.", first=1)
    ends: list[Rule] = [
        (r"shared\.weight", "blocks.0.embed.weight"),
        (r"linear\.(.+)", r"blocks.0.stem.linear.\1"),
        (rf"output_layer\.0\.{_STATISTICS}", rf"blocks.{last}.block.norm.norm.\1"),
        (r"output_layer\.0\.(\w+)", rf"blocks.{last}.block.norm.\1"),
        (r"output_layer\.2\.(.+)", rf"blocks.{last}.block.conv.\1"),
    ]
    width = len(weights["output_layer.0.gain"]) // {3: 4, 4: 2}.get(stages, 1)  # of 32 and of 64 px
    latent = weights[f"linear.{_RAW}"].shape[1] * (stages + 1)
    shared = weights["shared.weight"].shape[1]
    yield renamed(weights, [*ends, *rules]), {**settings, "width": width, "latent": latent, "shared": shared}


def _block_rules(weights: Weights, lead: str, first: int) -> tuple[list[Rule], int]:
    """Return the rules of blocks, which are one list here, attention after its block, and the number of the next."""
    names = {match[1] for match in (re.match(_BLOCK, name) for name in weights) if match}
    ordered = sorted(names, key=lambda name: [int(number) for number in name.split(".")])
    places = {name: f"blocks.{place}.{lead}" for place, name in enumerate(ordered, start=first)}
    return [
        (rf"{_BLOCK}bn([12])\.{_STATISTICS}", lambda m: f"{places[m[1]]}norm{m[2]}.norm.{m[3]}"),
        (rf"{_BLOCK}bn([12])\.(.+)", lambda m: f"{places[m[1]]}norm{m[2]}.{m[3]}"),
        (rf"{_BLOCK}(\w+)(.*)", lambda m: f"{places[m[1]]}{_LAYERS.get(m[2], m[2])}{m[3]}"),
    ], first + len(places)
