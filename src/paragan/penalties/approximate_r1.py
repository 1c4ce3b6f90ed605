"""R1 by finite differences (Lin et al. 2025, arXiv 2501.08316, "Diffusion Adversarial Post-Training").

(D(x) - D(x + sigma n))^2 on real samples, n ~ N(0, 1): about sigma^2 |grad D(x)|^2, without a second derivative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Rows, Side, TurnInputs
from paragan.penalties._options import FiniteDifferenceOptions
from paragan.penalties.base.options_penalty import OptionsPenalty

_GOLDEN = (sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class Options(FiniteDifferenceOptions):
    """Weight, noise and period of approximate R1."""


class _Chosen(NamedTuple):
    """Samples that are penalised: their places among these rows, and their numbers among all chosen ones of the batch.

    total: number of all chosen ones. factor: of their losses, since the mean is over all samples of the batch.
    """

    places_N: Tensor
    numbers_N: Tensor
    total: int
    factor: float


class Penalty(OptionsPenalty):
    """Squared change of D's logit under noise on real samples, at the cost of one more forward of D.

    Works where R1 is refused or expensive: no double backward. Gradients pass through both logits; patch logits count
    as their mean, and several discriminators add theirs. Noise is drawn by row and added before augmentation. The
    whole batch is augmented, whatever `fraction` is. In a D with dropout the change contains that of the masks; with
    batch norm, that of the statistics, which a `fraction` below 1 takes over fewer samples.
    """

    name = "approximate_r1"
    side = Side.D
    per_sample = True
    options: FiniteDifferenceOptions

    def __call__(self, context: PenaltyContext) -> Tensor:
        output, (x, *conditions), kind = self._inputs(context)
        assert x is not None
        feed = context.feed
        chosen = _chosen(feed.rows, self.options.fraction)
        places = chosen.places_N.to(x.device, non_blocking=True)
        noise = self._noise(feed, chosen, x)
        shifted = x.detach().index_add(0, places, noise, alpha=self.options.sigma)
        arguments = (context.augmented(shifted, kind), *conditions)
        inputs = [None if tensor is None else tensor[places] for tensor in arguments]
        shifted_output = DiscriminatorOutput.of(context.network(*inputs))
        weight = self.weight_at(feed.rows)
        if self.options.divide_by_sigma_squared:
            weight /= self.options.sigma**2
        weight *= chosen.factor
        squares = []
        for name, member in output.by_name.items():
            logits_B = mean_per_sample(member.logits_B)
            change_N = logits_B[places] - mean_per_sample(shifted_output.by_name[name].logits_B)
            squares.append(torch.zeros_like(logits_B).index_add(0, places, weight * change_N.square()))
        return sum_of(squares)

    def _inputs(self, context: PenaltyContext) -> tuple[DiscriminatorOutput, Sequence[Tensor | None], str]:
        """Return D's output, the arguments that it belongs to, and the kind of samples (`approximate_r2`: others)."""
        assert context.outputs.real is not None
        return context.outputs.real, context.feed.real_inputs, "real"

    def _noise(self, feed: TurnInputs, chosen: _Chosen, x: Tensor) -> Tensor:
        """Draw noise for all chosen samples, and return that of these rows: the same on any number of ranks."""
        all_chosen = Rows(step=feed.rows.step, first=0, count=chosen.total, total=chosen.total)
        noise = rng.normal(feed.seed, self.name, all_chosen, tuple(x.shape[1:]))[chosen.numbers_N]
        return noise.to(x.device, x.dtype, non_blocking=True)


def _chosen(rows: Rows, fraction: float) -> _Chosen:
    """Choose a share of the batch, spread over it, so that ranks and micro-batches have similar numbers of samples."""
    num_chosen = max(1, round(fraction * rows.total))
    # Fractions of multiples of the golden ratio: windows of rows, and every n-th row, have their share of small ones.
    spread_T, _ = np.modf(np.arange(rows.total) * _GOLDEN)
    is_chosen_T = spread_T.argsort().argsort() < num_chosen  # twice: the rank of each fraction
    numbers_T = is_chosen_T.cumsum() - 1
    places = np.flatnonzero(is_chosen_T[rows.window])  # not by torch: `paragan plan` has tensors without values
    numbers = numbers_T[rows.window][places]
    factor = rows.total / num_chosen
    if not len(places):  # one sample without a loss: in the layers of D, ranks wait for one another
        places = numbers = np.zeros(min(1, rows.count), dtype=np.int64)
        factor = 0.0
    return _Chosen(torch.from_numpy(places), torch.from_numpy(numbers), num_chosen, factor)
