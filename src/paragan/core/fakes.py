"""Generation of fakes: the one place where the generator of a turn runs."""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.core.outputs import GeneratorOutput
from paragan.core.protocols import Network, Turn
from paragan.core.types import Side, TurnInputs


def generate(generator: Network, feed: TurnInputs) -> GeneratorOutput:
    """Run the generator on the latents, or conditions, of these rows."""
    return GeneratorOutput.of(generator(*feed.fake_inputs))


@torch.no_grad()
def detached_fakes(turn: Turn, generator: Network, parts: int) -> tuple[Tensor, ...]:
    """Generate images without graph, per micro-batch; in one call if G mixes samples."""
    cuts = turn.feed.parts(1 if generator.mixes else parts)
    return tuple(generate(generator, feed).images for feed in cuts)


def with_d_fakes(turn: Turn, generator: Network, parts: int) -> Turn:
    """Return D's turn with fakes of this generator; G's turn, or one with fakes, unchanged."""
    if turn.side is Side.G or turn.feed.fakes is not None:
        return turn
    return turn.with_fakes(detached_fakes(turn, generator, parts))
