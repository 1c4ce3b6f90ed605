"""Numbers of parameters of every model at published settings, exactly: printed by others, or counted by hand.

Where nobody prints a number, or a rounded one, the sum over the layers of the paper's tables stands in: formulas that
know nothing of this package.
"""

from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
import yaml

from paragan.core import registry


class Case(NamedTuple):
    source: str
    model: str
    settings: str
    shape: tuple[int, ...]
    classes: int
    g: int
    d: int


def conv(inputs: int, outputs: int, area: int = 1, bias: bool = True) -> int:
    """Parameters of a convolution or, of area 1, of a linear layer. inputs: those of one group."""
    return (inputs * area + bias) * outputs


def sequence(widths: list[int], area: int) -> int:
    return sum(conv(a, b, area) for a, b in pairwise(widths))


def hifigan(width: int, rates: list[int], dilated: dict[int, int]) -> tuple[int, int]:
    """dilated: convolutions of each residual block, by their kernel size (Kong et al. 2020, table 5)."""
    widths = [width >> level for level in range(len(rates) + 1)]
    ups = sum(a * b * 2 * rate + b for (a, b), rate in zip(pairwise(widths), rates, strict=True))
    residual = sum(number * conv(b, b, kernel) for b in widths[1:] for kernel, number in dilated.items())
    return conv(80, width, 7) + ups + residual + conv(widths[-1], 1, 7), sum(hifigan_d())


def hifigan_d() -> tuple[int, int]:
    """Five periods, three scales; sizes of layers: the authors' code."""
    period = sequence([1, 32, 128, 512, 1024, 1024], 5) + conv(1024, 1, 3)
    scale = conv(1, 128, 15) + conv(128 // 4, 128, 41) + conv(128 // 16, 256, 41) + conv(256 // 16, 512, 41)
    scale += conv(512 // 16, 1024, 41) + conv(1024 // 16, 1024, 41) + conv(1024, 1024, 5) + conv(1024, 1, 3)
    return 5 * period, 3 * scale


def encodec(width: int, rates: list[int], levels: int, codes: int, depth: int, windows: int) -> tuple[int, int]:
    """Defossez et al. 2022, section 3.1, without LSTM; codes of DAC."""
    widths = [width << level for level in range(len(rates) + 1)]
    residuals = [conv(w, w // 2, 3) + conv(w // 2, w) for w in widths[:-1]]
    pairs = list(zip(pairwise(widths), rates, strict=True))
    encoder = conv(1, width, 7) + sum(residuals) + sum(conv(a, b, 2 * rate) for (a, b), rate in pairs)
    decoder = sum(residuals) + sum(a * b * 2 * rate + a for (a, b), rate in pairs) + conv(width, 1, 7)
    ends = 2 * conv(widths[-1], widths[-1], 7)
    quantizer = levels * (conv(widths[-1], depth) + codes * depth + conv(depth, widths[-1]))
    half = width // 2
    scale = conv(2, half, 27) + 3 * conv(half, half, 27) + conv(half, half, 9) + conv(half, 1, 9)
    return encoder + ends + quantizer + decoder, windows * scale


def vqgan(widths: list[int], codes: int, depth: int) -> tuple[int, int]:
    """Esser et al. 2021, table 7, with one residual block of each map, no attention, and two halvings in PatchGAN."""

    def residual(width: int) -> int:
        return 2 * (2 * width + conv(width, width, 9))

    first, last = widths[0], widths[-1]
    encoder = sequence([3, *widths], 16) + sum(map(residual, widths)) + 2 * last + conv(last, depth)
    decoder = conv(depth, last, 9) + sum(map(residual, widths)) + sequence([*reversed(widths), first], 9)
    decoder += 2 * first + conv(first, 3, 9)
    half = first // 2
    norms = 2 * (2 * half + 4 * half)
    d = conv(3, half, 16) + 16 * (half * 2 * half + 2 * half * 4 * half) + norms + conv(4 * half, 1, 16)
    return encoder + codes * depth + decoder, d


def flow_unet(width: int, blocks: int, embed: int, side: int, classes: int) -> tuple[int, int]:
    """DDPM's U-Net (Ho et al. 2020, appendix B) without attention, two maps on patches of 2x2."""

    def block(a: int, b: int) -> int:
        shortcut = 0 if a == b else conv(a, b)
        return 2 * a + conv(a, b, 9) + conv(embed, 2 * b) + 2 * b + conv(b, b, 9) + shortcut

    wide = 2 * width
    encoder = conv(64, embed) + conv(embed, embed) + classes * embed + conv(3 * 4, width, 9)
    encoder += blocks * block(width, width) + block(width, wide) + (blocks - 1) * block(wide, wide) + block(wide, wide)
    decoder = block(2 * wide, wide) + (blocks - 1) * block(wide, wide)
    decoder += block(wide + width, width) + (blocks - 1) * block(width, width) + 2 * width + conv(width, 3 * 4, 9)
    maps = [(width, side // 2), (wide, side // 4), (wide, side // 4)]
    heads = sum(conv(w, w) + w * s * s + conv(w, 1) + classes * w for w, s in maps)
    return encoder + decoder, encoder + heads


def stylegan2(side: int, base: int) -> tuple[int, int]:
    """Karras et al. 2020, figure 7: skip G and residual D, latents and styles of 512, mapping of 8 layers."""
    widths = [min(512, base // s) for s in (4 << level for level in range(side.bit_length() - 2))]

    def styled(a: int, b: int) -> int:
        return a * b * 9 + b + 1 + conv(512, a)

    def to_image(a: int) -> int:
        return conv(a, 3) + conv(512, a)

    g = 8 * conv(512, 512) + 512 * 16 + styled(512, 512) + sum(map(to_image, widths))
    g += sum(styled(a, b) + styled(b, b) for a, b in pairwise(widths))
    d = conv(3, widths[-1]) + conv(512 + 1, 512, 9) + conv(512 * 16, 512) + conv(512, 1)
    d += sum(conv(b, b, 9) + conv(b, a, 9) + b * a for a, b in pairwise(widths))
    return g, d


def fastgan_128() -> tuple[int, int]:
    """Liu et al. 2021, without the layers of more than 128 px: no convolution has a bias."""

    def gated(a: int, b: int, area: int = 9) -> int:
        return a * 2 * b * area + 4 * b

    def excitation(a: int, b: int) -> int:
        return a * b * 16 + b * b

    widths = [1024, 512, 256, 128, 128, 64]  # of G's maps of 4 to 128 px
    g = gated(256, 1024, 16) + sum(gated(a, b) for a, b in pairwise(widths)) + 64 * 3 * 9
    g += sum(gated(b, b) + 2 for b in widths[1::2])  # a second layer, and two strengths of noise
    g += excitation(1024, 128) + excitation(512, 64)
    d = 3 * 32 * 9 + excitation(32, 256) + excitation(64, 512)
    d += sum(a * b * 17 + b * b * 9 + 6 * b for a, b in pairwise([32, 64, 128, 256, 512]))
    d += 512 * 1024 + 2 * 1024 + 1024 * 16
    d += sum(a * b * 16 for a, b in pairwise([3, 32, 64, 128, 256])) + 2 * (64 + 128 + 256) + 256 * 16
    decoders = [[512, 128, 64, 64, 32], [256, 128, 64, 64, 32], [256, 128, 64, 64]]  # the last makes 64 px
    d += sum(sum(gated(a, b) for a, b in pairwise(each)) + each[-1] * 3 * 9 for each in decoders)
    return g, d


_BROCK_64 = "flavour: brock, width: 64, latent: 120"
_TAPERED = "768, 768, 768, 768, 384"
_CONTRAST = "base: 16384, mapping: 2, head: contrast"
_CYCLEGAN = "width: 64, blocks: 9, d_halvings: 3"
_HIFIGAN = "flavour: v1, n_mels: 80, rates: [8, 8, 2, 2]"
_HIFIGAN_V3 = "flavour: v3, n_mels: 80, rates: [8, 8, 4], width: 256"
_V1 = {3: 6, 7: 6, 11: 6}  # convolutions of a residual block, by kernel size
_V3 = {3: 2, 5: 2, 7: 2}
_ENCODEC = "width: 32, rates: [2, 4, 5, 8], codebooks: 32, codes: 1024, depth: 128"
_WINDOWS = "windows: [2048, 1024, 512, 256, 128]"
_VQGAN = "width: 128, halvings: 4, codes: 1024, depth: 256"

STUDIO = "StudioGAN's logs"
BROCK = "BigGAN-PyTorch, printed at the start"
MIMICRY = "mimicry's table"
KARRAS = "StyleGAN2-ADA, printed at the start"
R3GAN = "R3GAN's presets, printed at the start"
LIU = "FastGAN-pytorch, counted"
BY_HAND = "no number is published: the sum over layers"
ISOLA = "pytorch-CycleGAN-and-pix2pix, printed at the start"
_TO_128 = 64 * 3  # of their 1x1 convolution to a second image, of 128 px
# no bias before instance norm, which removes it: authors' D with three such layers
_REMOVED = 2 * (128 + 256 + 512)

SIZES = [
    Case("tutorials of MNIST, layer by layer", "mlp", "", (1, 28, 28), 0, 1_486_352, 533_505),
    Case(STUDIO, "dcgan", "", (3, 32, 32), 0, 3_812_355, 2_931_009),
    Case(MIMICRY, "sngan", "", (3, 32, 32), 0, 4_276_739, 1_053_825),
    Case(STUDIO, "sngan", "", (3, 32, 32), 10, 4_304_387, 1_055_105),
    Case(STUDIO, "sngan", "", (3, 64, 64), 200, 13_366_915, 19_747_521),
    Case(STUDIO, "sngan", "", (3, 128, 128), 1000, 41_996_931, 39_443_137),
    Case(STUDIO, "sngan", "head: auxiliary", (3, 32, 32), 10, 4_304_387, 1_055_105),
    Case(STUDIO, "sagan", "", (3, 32, 32), 10, 4_386_308, 1_075_586),
    Case(STUDIO, "sagan", "", (3, 64, 64), 200, 13_387_396, 19_752_642),
    Case(STUDIO, "sagan", "", (3, 128, 128), 1000, 42_017_412, 39_448_258),
    Case(STUDIO, "sagan", "head: auxiliary", (3, 32, 32), 10, 4_386_308, 1_075_586),
    Case(STUDIO, "biggan", "", (3, 32, 32), 10, 9_416_196, 2_415_170),
    Case(STUDIO, "biggan", "head: auxiliary", (3, 32, 32), 10, 9_416_196, 2_415_170),
    Case(STUDIO, "biggan", "", (3, 32, 32), 0, 8_825_092, 2_413_250),
    Case(STUDIO, "biggan", "width: 80", (3, 64, 64), 200, 17_335_204, 30_796_722),
    Case(STUDIO, "biggan", "", (3, 128, 128), 1000, 70_433_988, 87_982_370),
    Case(BROCK, "biggan", "width: 64", (3, 128, 128), 1000, 31_978_628, 39_448_258),
    Case(BROCK, "biggan", "flavour: brock", (3, 32, 32), 10, 9_231_875, 9_456_769),
    Case(BROCK, "biggan", "flavour: brock, shared: 0, latent: 128", (3, 32, 32), 10, 9_258_243, 9_456_769),
    Case(BROCK, "biggan", "flavour: brock, shared: 0, latent: 128, width: 64", (3, 32, 32), 10, 4_304_387, 4_207_361),
    Case(BROCK, "biggan", "", (3, 256, 256), 1000, 82_235_844, 99_225_890),
    Case(BROCK, "biggan", "flavour: brock", (3, 256, 256), 1000, 82_235_844, 99_225_890),
    Case(BROCK, "biggan", "", (3, 512, 512), 1000, 82_468_068, 99_401_282),
    Case(BROCK, "biggan", f"{_BROCK_64}, attention: {{g: 64}}", (3, 64, 64), 1000, 31_908_100, 20_566_721),
    Case(BROCK, "biggan", f"{_BROCK_64}, attention: 32", (3, 64, 64), 1000, 31_969_540, 20_571_842),
    Case(STUDIO, "biggan_deep", "", (3, 32, 32), 10, 7_762_948, 2_908_930),
    Case(BROCK, "biggan_deep", "", (3, 64, 64), 1000, 32_874_372, 20_951_554),
    Case(BROCK, "biggan_deep", "", (3, 128, 128), 1000, 50_244_484, 34_590_210),
    Case(BROCK, "biggan_deep", "", (3, 256, 256), 1000, 55_736_708, 38_247_426),
    Case(STUDIO, "contragan", "", (3, 32, 32), 10, 9_416_196, 2_517_186),
    Case(STUDIO, "contragan", "", (3, 128, 128), 1000, 70_433_988, 90_343_202),
    Case(STUDIO, "reacgan", "", (3, 32, 32), 10, 9_416_196, 2_517_186),
    Case(STUDIO, "reacgan", "", (3, 128, 128), 1000, 70_433_988, 90_343_202),
    Case(LIU, "fastgan", "", (3, 256, 256), 0, 29_127_846 - _TO_128, 11_526_160),
    Case(LIU, "fastgan", "", (3, 512, 512), 0, 29_174_392 - _TO_128, 11_526_496),
    Case(LIU, "fastgan", "", (3, 1024, 1024), 0, 29_176_512 - _TO_128, 11_528_192),
    Case(BY_HAND, "fastgan", "", (3, 128, 128), 0, *fastgan_128()),
    Case(R3GAN, "r3gan", "", (3, 32, 32), 10, 20_781_952, 21_280_512),
    Case(R3GAN, "r3gan", "width: 1536", (3, 64, 64), 1000, 103_570_432, 107_205_120),
    Case(R3GAN, "r3gan", "width: 1536", (3, 32, 32), 1000, 82_914_304, 86_548_992),
    Case(R3GAN, "r3gan", f"g_widths: [{_TAPERED}]", (3, 64, 64), 0, 22_429_824, 22_381_440),
    Case(R3GAN, "r3gan", f"g_widths: [{_TAPERED}, 192, 96]", (3, 256, 256), 0, 23_057_952, 23_009_568),
    Case(KARRAS, "stylegan2", "mapping: 2, residual: false", (3, 32, 32), 10, 20_215_315, 23_089_664),
    Case(KARRAS, "stylegan2", "mapping: 2, residual: false", (3, 32, 32), 0, 19_947_539, 20_720_641),
    Case(KARRAS, "stylegan2", "base: 16384, mapping: 2", (3, 128, 128), 0, 22_949_277, 23_882_369),
    Case(STUDIO, "stylegan2", "base: 16384, mapping: 2", (3, 128, 128), 1000, 23_723_933, 26_758_272),
    Case(STUDIO, "stylegan2", _CONTRAST, (3, 128, 128), 1000, 23_723_933, 31_179_393),
    Case(KARRAS, "stylegan2", "base: 16384", (3, 256, 256), 0, 24_767_458, 24_001_089),
    Case(KARRAS, "stylegan2", "", (3, 1024, 1024), 0, 30_370_060, 29_012_513),
    Case(ISOLA, "pix2pix", "", (3, 256, 256), 0, 54_413_955, 2_768_705),
    Case(ISOLA, "cyclegan", _CYCLEGAN, (3, 256, 512), 0, 2 * 11_378_179, 2 * 2_764_737 - _REMOVED),
    Case(
        "BasicSR, of x4plus",
        "real_esrgan",
        "width: 64, blocks: 23, d_width: 64",
        (3, 256, 256),
        0,
        16_697_987,
        4_376_897,
    ),
    Case("the paper: 13.92 M", "hifigan", f"{_HIFIGAN}, width: 512", (1, 8192), 0, *hifigan(512, [8, 8, 2, 2], _V1)),
    Case("the paper: 0.92 M", "hifigan", f"{_HIFIGAN}, width: 128", (1, 8192), 0, *hifigan(128, [8, 8, 2, 2], _V1)),
    Case("the paper: 1.46 M", "hifigan", _HIFIGAN_V3, (1, 8192), 0, *hifigan(256, [8, 8, 4], _V3)),
    Case(BY_HAND, "encodec", _ENCODEC, (1, 20480), 0, *encodec(32, [2, 4, 5, 8], 32, 1024, 128, windows=3)),
    Case(BY_HAND, "encodec", _WINDOWS, (1, 4096), 0, *encodec(16, [2, 4, 8], 4, 256, 8, windows=5)),
    Case(BY_HAND, "vqgan", _VQGAN, (3, 256, 256), 0, *vqgan([128, 256, 512, 512], 1024, 256)),
    Case(BY_HAND, "vqgan", "", (3, 32, 32), 0, *vqgan([64, 128], 512, 8)),
    Case(BY_HAND, "flow_unet", "", (3, 32, 32), 10, *flow_unet(32, 1, 64, 32, 10)),
    Case(BY_HAND, "flow_unet", "width: 128, blocks: 2, embed: 512", (3, 64, 64), 0, *flow_unet(128, 2, 512, 64, 0)),
    Case(BY_HAND, "stylegan2", "", (3, 512, 512), 0, *stylegan2(512, 32768)),
    Case(BY_HAND, "stylegan2", "base: 16384", (3, 64, 64), 0, *stylegan2(64, 16384)),
]


@pytest.mark.parametrize(
    "case", SIZES, ids=lambda case: f"{case.model}-{case.shape[-1]}-{case.classes}-{case.settings}"
)
def test_networks_have_the_published_number_of_parameters(case):
    file = registry.load_module("models", case.model)
    settings = yaml.safe_load(f"{{{case.settings}}}")
    if hasattr(file.Options, "conditional"):
        settings["conditional"] = case.classes > 0
    with torch.device("meta"):
        networks = [
            kind(file.Options(**settings), case.shape, case.classes) for kind in (file.Generator, file.Discriminator)
        ]
    counts = tuple(sum(weight.numel() for weight in network.parameters()) for network in networks)
    assert counts == (case.g, case.d), case.source


def test_table_has_every_model():
    assert {case.model for case in SIZES} == set(registry.names("models"))


def test_counts_by_hand_are_those_that_others_print():
    """Papers round; StyleGAN2's formula is held against its authors' numbers at sizes that they print."""
    cases = {case.source: case for case in SIZES}
    for millions in ("13.92", "0.92", "1.46"):
        assert 0 <= cases[f"the paper: {millions} M"].g / 1e6 - float(millions) < 0.01
    assert [round(count / 1e6, 1) for count in hifigan_d()] == [41.1, 29.6]
    assert stylegan2(1024, 32768) == (30_370_060, 29_012_513)
    assert stylegan2(256, 16384) == (24_767_458, 24_001_089)
    assert stylegan2(512, 32768)[1] == 28_982_849
