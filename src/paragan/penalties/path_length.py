"""Path length regularisation of StyleGAN2 (Karras et al. 2020, equation 4).

A step in the styles should change the image equally much wherever it is taken: (|J_w^T y| - a)^2
for images of normal noise y and the running mean a of those lengths. For generators whose forward
takes an offset of their styles (`stylegan2`).
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, Fraction
from paragan.core.outputs import GeneratorOutput
from paragan.core.protocols import PenaltyContext
from paragan.core.row_draws import rows_of_calls
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import LazyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True)
class Options(LazyOptions):
    """Weight, period and mean of path length regularisation."""

    weight: Weight = 2.0
    interval: Count = 4
    decay: Fraction = 0.01
    """Weight of a new length in the running mean."""
    every: Count = 2
    """Use every n-th image of the batch; the others would give the same estimate at more cost."""


@runtime_checkable
class Styled(Protocol):
    """Generator whose forward takes (z, y, offset of styles). styles: (L, W), number and length."""

    styles: tuple[int, int]


class Penalty(OptionsPenalty):
    """Path length penalty, at the cost of one more forward of G on some of the latents.

    The running mean is that of all ranks, and a constant for gradients; in the authors' code the share
    `decay` of the mean of these lengths is not.
    """

    name = "path_length"
    needs_images = True
    side = Side.G
    needs = frozenset({Capability.DOUBLE_BACKWARD, Capability.COUPLED})
    uses_outputs = False
    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.state = {"mean": torch.zeros(())}

    def __call__(self, context: PenaltyContext) -> Tensor:
        rows = context.feed.rows
        every = self.options.every
        # Every n-th row of the global batch: the first one here depends on where these rows begin in it.
        chosen = slice(-rows.first % every, None, every)
        length_N = self._lengths(context, chosen)
        # One value per row, as of every term: 0 for the others; the factor makes the mean that over the chosen rows.
        zero_B = length_N.new_zeros(rows.count)
        length_B = zero_B.slice_scatter(length_N, 0, chosen.start, None, every)
        num_chosen = -(-rows.total // every)
        # the mean of all ranks: one of this rank's lengths would depend on how rows lie on ranks
        mean = self._update_mean(context.whole(length_B.detach()).sum() / num_chosen).to(length_N.dtype)
        loss_N = (length_N - mean).square() * (self.weight_at(rows) * rows.total / num_chosen)
        return torch.zeros_like(length_B).slice_scatter(loss_N, 0, chosen.start, None, every)

    def _lengths(self, context: PenaltyContext, chosen: slice) -> Tensor:
        """Return the image's change per unit step of a style, in a random direction: (N,)."""
        feed = context.feed
        shapes = [net.styles for net in context.network.module.modules() if isinstance(net, Styled)]
        if not shapes or feed.latent is None:
            raise ConfigError("penalty path_length needs a generator with styles; use model stylegan2")
        z_NZ = feed.latent[chosen]
        y_N = None if feed.label is None else feed.label[chosen]
        shift_NLW = z_NZ.new_zeros(len(z_NZ), *shapes[0]).requires_grad_()  # offset 0: gradients at the styles
        first = feed.rows.first + chosen.start
        rows = replace(feed.rows, first=first, count=len(z_NZ), stride=chosen.step)
        with rows_of_calls(rows, self.name):  # noise of layers: draws of its own, for these rows
            images = GeneratorOutput.of(context.network(z_NZ, y_N, shift_NLW)).images
        noise = rng.normal(feed.seed, "path_length", feed.rows, tuple(images.shape[1:]))[chosen].to(images)
        towards_N = (images * noise).flatten(1).sum(1) / sqrt(images.shape[2] * images.shape[3])
        return context.input_gradient(towards_N, shift_NLW).square().sum(2).mean(1).sqrt()

    @torch.no_grad()
    def _update_mean(self, mean: Tensor) -> Tensor:
        """Update and return the running mean; a player that skips the step restores it."""
        running = self.state["mean"]
        running += self.options.decay * (mean.to(running.dtype) - running)
        return running.clone()
