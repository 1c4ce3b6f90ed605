"""The loss of an auxiliary classifier (Odena et al. 2017, "Conditional Image Synthesis with Auxiliary Classifier GANs",
equation 3): D is also to tell which class an image has, and G to make images whose class D tells.

For networks whose D has such logits beside its own: `model.head=auxiliary` of `biggan`, `sagan` and `sngan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.options import Count, NotNegative
from paragan.core.seams import Part
from paragan.core.types import Can, Side, Verdict
from paragan.penalties._compared import without_labels


@dataclass(frozen=True)
class Options:
    """weight: of it in the loss. interval: every so many updates, then that much stronger. side: whose loss it is;
    ACGAN has one of each. fakes: D learns classes from those of G as well, as in the paper; later work leaves them out,
    for what G shows of a class early on is not that class.
    """

    weight: NotNegative = 1.0
    interval: Count = 1
    side: Literal["g", "d"] = "d"
    fakes: bool = True


class Penalty:
    """weight * cross-entropy of the class logits, per sample: D's on real images and fakes, G's on its own."""

    name = "auxiliary"
    needs: frozenset[Can] = frozenset()
    per_sample = False

    def __init__(self, options: Options) -> None:
        self.interval, self.weight = options.interval, options.weight * options.interval
        self.side, self.fakes = Side(options.side), options.fakes

    def __call__(self, part: Part) -> Tensor:
        outputs, feed = part.outputs, part.feed
        if self.side is Side.G:
            return self.weight * _wrong(outputs.fake, feed.y_B)
        assert outputs.real is not None and feed.real is not None
        wrong_B = _wrong(outputs.real, feed.real.y_B)
        return self.weight * (wrong_B + _wrong(outputs.fake, feed.y_B) if self.fakes else wrong_B)


def _wrong(verdict: Verdict, y_B: Tensor | None) -> Tensor:
    """-log of the probability of the right class, (B,)."""
    if y_B is None:
        raise ConfigError(without_labels("auxiliary"))
    if verdict.classes_BK is None:
        raise ConfigError(
            "penalties: auxiliary needs a D that tells classes, found none; set model.head=auxiliary (biggan, sagan, "
            "sngan; not model.conditional=false), or let D return paragan.Verdict(logits, features, classes)"
        )
    return F.cross_entropy(verdict.classes_BK, y_B, reduction="none")
