"""One update of D and one of G: the library's step, as `build` makes it of a recipe, against a plain torch loop.

    python -m benchmarks.step --net sngan|biggan|pix2pix [--pairs 15] [--only WORD] [--levers]

SNGAN and BigGAN are those of CIFAR-10 at their published width, batch 32; pix2pix is the paper's at 256 px, batch 1,
where both sides make images once for both turns. CPU seconds at one thread, pair by pair.

Aims, plain loop / ours: SNGAN and BigGAN 7 with channels last, bf16 and shared fakes on a processor with AMX or AMD's
avx512_bf16, pix2pix 3.5. In fp32 and on other processors, SNGAN | BigGAN: 1.0 in fp32, 1.3 | 1.25 channels last.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import step_loop, step_nets
from benchmarks.paired_timing import Ratio, compare, keep
from benchmarks.record import machine
from paragan import build
from paragan.config import RunConfig, read_recipe
from paragan.core import rng
from paragan.core.types import Batch, Rows
from paragan.game.gan import GAN
from paragan.layers.resample import DownConv2d, UpConv2d
from paragan.runs.shape_only_data import shape_only_data

FP32 = ("g.precision=fp32", "d.precision=fp32", "g.channels_last=false", "d.channels_last=false")
LAST = ("g.precision=fp32", "d.precision=fp32", "g.channels_last=true", "d.channels_last=true")
BF16 = ("g.precision=bf16", "d.precision=bf16", "g.channels_last=true", "d.channels_last=true")
APART, SHARED = "scheme=synchronous", "scheme=shared_fakes"


@dataclass(frozen=True)
class Case:
    """One pair of networks and its inputs. words: settings of the recipe besides the width."""

    recipe: str
    words: tuple[str, ...]
    width: int
    batch: int
    side: int = 32
    classes: int = 10

    def game(self, *words: str) -> GAN:
        """The library's."""
        shape = (3, self.side, self.side)
        data = shape_only_data(shape, self.classes, condition=None if self.classes else 3)
        return build.gan(self.config(*words), data, torch.device("cpu"))

    def config(self, *words: str) -> RunConfig:
        """The recipe with the settings of this case."""
        always = ("data.path=nowhere", "g.ema=null", f"model.width={self.width}", "d.updates_per_step=1")
        return read_recipe(self.recipe, [*self.words, *always, *words])

    def real(self) -> Batch:
        """One batch, the input of either side at every step."""
        rows, shape = Rows(step=0, first=0, count=self.batch, total=self.batch), (3, self.side, self.side)
        x, condition = (rng.uniform(1, name, rows, shape) * 2 - 1 for name in ("x", "condition"))
        if self.classes:
            return Batch(rows, {"image": x, "label": rng.integers(1, "y", rows, self.classes)})
        return Batch(rows, {"image": x, "condition": condition})

    def nets(self) -> tuple[nn.Module, nn.Module]:
        """The plain G and D."""
        width, classes = self.width, self.classes
        if not classes:
            return step_nets.UNet(width, self.side.bit_length() - 1, 0.5), step_nets.PatchDiscriminator(width)
        if "model=biggan" not in self.words:
            d = step_nets.ResidualDiscriminator(width, classes, attention=False)
            return step_nets.SNGenerator(2 * width, classes, 128), d
        d = step_nets.ResidualDiscriminator(2 * width, classes, attention=True)
        return step_nets.BigGenerator(4 * width, classes, 128, 20), d

    def plain(self) -> Callable[[], None]:
        """A step of the plain loop."""
        (g, d), real = self.nets(), self.real()
        x, y, condition = (t if t is not None else torch.empty(0) for t in (real.image, real.label, real.condition))
        if self.classes:
            return step_loop.labelled(g, d, x, y, 80 if "model=biggan" in self.words else 128)
        return step_loop.conditioned(g, d, x, condition)

    def ours(self, *words: str, unfolded: bool = False) -> Callable[[], object]:
        """A step of the library. unfolded: its convolutions next to a resize are computed after or before it."""
        gan: Any = self.game(*words)
        if unfolded:
            unfold(gan.g.net), unfold(gan.d.net)
        return partial(build.scheme(self.config(*words)).step, gan, repeat(self.real()))


CASES = {
    "sngan": Case("sngan-cifar10", (), 128, 32),
    "biggan": Case("sngan-cifar10", ("model=biggan",), 96, 32),
    "pix2pix": Case("pix2pix-facades", (), 64, 1, 256, 0),
}


def unfold(net: nn.Module) -> None:
    """Each convolution that was summed up with its resize becomes the two again."""
    ways: dict[type, Callable[..., Any]] = {
        UpConv2d: lambda m, x: F.conv2d(F.interpolate(x, scale_factor=2), m.weight, m.bias, padding=1),
        DownConv2d: lambda m, x: F.avg_pool2d(F.conv2d(x, m.weight, m.bias, padding=1), 2),
    }
    for module in net.modules():
        for kind, way in ways.items():
            if isinstance(module, kind):
                module.forward = partial(way, module)


def rows(case: Case) -> dict[str, tuple[str, ...]]:
    """What the plain loop is compared with."""
    if not case.classes:
        return {"fp32": (*FP32, SHARED), "channels last": (*LAST, SHARED), "bf16 + channels last": (*BF16, SHARED)}
    return {
        "fp32": (*FP32, APART),
        "channels last": (*LAST, APART),
        "channels last + shared fakes": (*LAST, SHARED),
        "bf16 + channels last": (*BF16, APART),
        "bf16 + channels last + shared fakes": (*BF16, SHARED),
    }


def levers(case: Case) -> Iterator[tuple[str, Callable[[], tuple[Callable[[], object], Callable[[], object]]]]]:
    """What each gives by itself: our step without and with it."""
    last = (*LAST, APART if case.classes else SHARED)
    yield "fp32 / channels last", lambda: (case.ours(*FP32, last[-1]), case.ours(*last))
    yield "apart / shared fakes", lambda: (case.ours(*LAST, APART), case.ours(*LAST, SHARED))
    if case.classes:
        label = "resize and convolution / both at once"
        yield label, lambda: (case.ours(*last, unfolded=True), case.ours(*last))
    if not bf16_reason():
        yield "fp32 / bf16", lambda: (case.ours(*last), case.ours(*BF16, last[-1]))


def bf16_reason() -> str:
    """Why rows with bf16 say nothing here; empty where bf16 products have at least the rate of fp32.

    Intel's avx512_bf16 without AMX has half of it (docs/internals/journal.md, 2026-11-20).
    """
    kind = machine()
    is_fast = "amx_bf16" in kind or ("AMD" in kind and "avx512_bf16" in kind)
    return "" if is_fast else "neither AMX nor AMD's avx512_bf16"


def measured(case: Case, pairs: int, only: str) -> dict[str, Ratio]:
    """By label; what this processor cannot do is printed. only: part of a label, and then run on any processor."""
    found = {}
    for name, words in rows(case).items():
        label = f"plain loop / {name}"
        if only and not label.endswith(only):
            continue
        if not only and "bf16" in label and bf16_reason():
            print(f"{label}: not run: {bf16_reason()}")
            continue
        found[label] = compare(case.plain(), case.ours(*words), pairs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=list(CASES), required=True)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", default="", help="rows that end so; bf16 is then run on any processor")
    parser.add_argument("--levers", action="store_true", help="also what each lever gives by itself")
    parser.add_argument("--lever", help="nothing but the levers whose label has this text")
    arguments = parser.parse_args()
    case = CASES[arguments.net]
    found = {} if arguments.lever else measured(case, arguments.pairs, arguments.only)
    if arguments.levers or arguments.lever:
        chosen = [(label, make) for label, make in levers(case) if (arguments.lever or "") in label]
        found |= {f"lever: {label}": compare(*make(), arguments.pairs) for label, make in chosen}
    note = f"width {case.width}, batch {case.batch}, {case.side} px, one D and one G update, no average of weights"
    missing = f"; bf16 not run: {bf16_reason()}" if bf16_reason() else ""
    suffix = "-levers" if arguments.lever else ""
    keep(f"step-{arguments.net}{suffix}", found, note + missing)


if __name__ == "__main__":
    main()
