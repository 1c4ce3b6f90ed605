"""Calls of a generator for fakes, and of a discriminator on real and fake samples."""

from collections.abc import Sequence

import torch
from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.protocols import Network, Turn
from paragan.core.row_draws import rows_of_calls
from paragan.core.types import Side, TurnInputs


def generate(generator: Network, feed: TurnInputs) -> GeneratorOutput:
    """Run the generator on the latents, or conditions, of these rows."""
    with rows_of_calls(feed.rows, "generate"):
        return GeneratorOutput.of(generator(*feed.fake_inputs))


@torch.no_grad()
def detached_fakes(turn: Turn, generator: Network, parts: int) -> tuple[Tensor, ...]:
    """Generate images without graph, per micro-batch; in one call if G mixes samples."""
    feeds = turn.feed.parts(1 if generator.mixes else parts)
    return tuple(generate(generator, feed).images for feed in feeds)


def with_d_fakes(turn: Turn, generator: Network, parts: int) -> Turn:
    """Return D's turn with fakes of this generator; G's turn, or one with fakes, unchanged."""
    if turn.side is Side.G or turn.feed.fakes is not None:
        return turn
    return turn.with_fakes(detached_fakes(turn, generator, parts))


def discriminate_both(
    d: Network, real: Sequence[Tensor | None], fake: Sequence[Tensor | None]
) -> tuple[DiscriminatorOutput, ...]:
    """Call D once on both inputs, twice if D mixes the samples of a batch; an argument is None in both or neither."""
    if d.mixes:
        return DiscriminatorOutput.of(d(*real)), DiscriminatorOutput.of(d(*fake))
    pairs = zip(real, fake, strict=True)
    both = [None if a is None or b is None else torch.cat([a, b.to(a.dtype)]) for a, b in pairs]
    assert real[0] is not None and fake[0] is not None
    return DiscriminatorOutput.of(d(*both)).split([len(real[0]), len(fake[0])])
