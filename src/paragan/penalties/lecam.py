"""LeCam regularisation against overfitting of D on small data (Tseng et al. 2021).

Moves logits of real images towards a moving mean of those of fakes and vice versa (section 3,
equation 5). The moving means are part of D's state.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.option_types import Fraction, Natural
from paragan.core.outputs import mean_per_sample
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weight and moving means of LeCam regularisation."""

    weight: Weight = 0.3
    """Weight of the term in the loss: the paper's lambda; its authors use 0.3 on CIFAR."""
    decay: Fraction = 0.99
    """Decay of the moving means of D's logits."""
    warmup: Natural = 0
    """Updates of D before the first that is penalised; the authors' code uses 1000."""


class Penalty(OptionsPenalty):
    """Squared distances of D's logits to the other kind's moving mean, per sample.

    (D(x) - mean of fakes)^2 + (D(G(z)) - mean of reals)^2; patch logits count as their mean. Means
    are over all ranks; early ones are plain means so far.
    """

    name = "lecam"
    side = Side.D
    needs = frozenset({Capability.COUPLED})
    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.state = {name: torch.zeros((), dtype=torch.float64) for name in ("real", "fake", "updates")}

    def __call__(self, context: PenaltyContext) -> Tensor:
        outputs = context.outputs
        assert outputs.real is not None
        real_B, fake_B = (mean_per_sample(o.single("penalty lecam").logits_B) for o in (outputs.real, outputs.fake))
        self._update_means(context.whole(torch.stack([real_B, fake_B], 1).detach()))
        above_B = real_B - self._mean("fake", fake_B)
        below_B = self._mean("real", real_B) - fake_B
        due = (self.state["updates"] > self.options.warmup).to(real_B.dtype)
        return self.weight_at(context.feed.rows) * due * (above_B.square() + below_B.square())

    @torch.no_grad()
    def _update_means(self, logits_T2: Tensor) -> None:
        """Update the moving means; a player that skips the step restores them."""
        state = self.state
        state["updates"] += 1
        share = (1 / state["updates"]).clamp(min=1 - self.options.decay)
        for name, mean in zip(("real", "fake"), logits_T2.double().mean(0), strict=True):
            state[name].lerp_(mean, share)

    def _mean(self, name: str, like: Tensor) -> Tensor:
        # a copy: the next update writes to the state, and a graph may hold it
        return self.state[name].to(like.dtype, copy=True)
