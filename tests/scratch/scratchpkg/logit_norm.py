"""A penalty outside the package: the squared logits of D on real images."""

from dataclasses import dataclass

import paragan as pg


@dataclass(frozen=True)
class Options:
    weight: float = 0.1
    """Factor of the penalty."""


class Penalty(pg.Penalty):
    name = "logit_norm"
    side = pg.Side.D

    def __init__(self, options):
        self.weight = options.weight

    def __call__(self, context):
        return self.weight * context.outputs.real.logits_B.square()
