"""HiFi-GAN of its authors: `g_*` has G under `generator`, `do_*` has D as `mpd` and `msd`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from paragan.checkpoint.layouts._names import ProjectWeights, Rule, Weights, numbers, renamed
from paragan.core.types import Side

PROJECT = "HiFi-GAN (jik876/hifi-gan)"
KNOWN_BY = re.compile(r"(module\.)?(generator\.)?conv_pre\.|m[ps]d\.discriminators\.")
_N = r"(\d{1,3})"
_SEGMENT = 32  # hops: 8192 samples at a hop of 256, as in its published configs
_AUDIO = {"name": "audio", "sample_rate": 22050, "n_fft": 1024, "fmax": 8000}  # of its published configs
_D_RULES: list[Rule] = [
    (rf"(m[ps]d)\.discriminators\.{_N}\.conv_post\.(.+)", r"\1.\2.last.\3"),
    (rf"(m[ps]d)\.discriminators\.{_N}\.convs\.(.+)", r"\1.\2.convs.\3"),
]


def networks(weights: Weights) -> Iterator[ProjectWeights]:
    """Yield D, or G with the settings of V1, V2 or V3; dilations and audio settings are not in the file."""
    g = {name.removeprefix("generator."): value for name, value in weights.items()}
    if "conv_pre.weight" not in g:
        tensors = renamed(weights, _D_RULES)
        # a text for the message: both flavours have this D, `small` has another
        settings = {"name": "hifigan", "flavour": "v1 or v3"}
        yield ProjectWeights(project=PROJECT, side=Side.D, tensors=tensors, settings=settings)
        return
    stages = numbers(g, rf"ups\.{_N}\.weight")
    kernels = 3  # of the residual blocks after an upsampling, in V1 to V3
    if len(numbers(g, rf"resblocks\.{_N}\..+")) != kernels * len(stages):
        return  # a generator of other blocks, which is read as a file of no known project

    def residual(match: re.Match[str]) -> str:
        """ResBlock1 alternates `convs1`, which are dilated, and `convs2`; ResBlock2 has `convs`."""
        block, series, conv, rest = match.groups()
        index = 2 * int(conv) + int(series) - 1 if series else conv
        return f"blocks.{int(block) // kernels}.residuals.{int(block) % kernels}.convs.{index}.{rest}"

    rules: list[Rule] = [
        (r"conv_pre\.(.+)", r"first.\1"),
        (r"conv_post\.(.+)", r"last.\1"),
        (rf"ups\.{_N}\.(.+)", r"blocks.\1.up.\2"),
        (rf"resblocks\.{_N}\.convs([12]?)\.{_N}\.(.+)", residual),
    ]
    width, n_mels, _ = g["conv_pre.weight"].shape
    has_pairs = any(".convs1." in name for name in g)
    flavour = "v1" if has_pairs else "v3"  # V2 is V1 of a smaller width
    rates = tuple(g[f"ups.{stage}.weight"].shape[-1] // 2 for stage in stages)  # a kernel is twice the rate
    hop = prod(rates)
    yield ProjectWeights(
        project=PROJECT,
        side=Side.G,
        tensors=renamed(g, rules),
        settings={"name": "hifigan", "flavour": flavour, "width": width, "n_mels": n_mels, "rates": rates},
        shape=(1, _SEGMENT * hop),
        data={**_AUDIO, "hop": hop, "n_mels": n_mels, "segment": _SEGMENT * hop},
    )
