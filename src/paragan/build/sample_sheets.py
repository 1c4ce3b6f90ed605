"""Construction of what a run shows of its samples."""

from __future__ import annotations

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured
from paragan.game.prior import Prior


def fixed_samples(
    config: RunConfig,
    found: Data,
    prior: Prior,
) -> FixedSamples | FixedTensors | None:
    """Return the sample sheets of a run; None for samples without pictures."""
    if not found.is_image:
        is_shown = is_pictured(found.train.tensors[prior.arguments[0]].shape)
        return FixedTensors(found.held_out, config.evaluation.sampling) if is_shown else None
    return FixedSamples(config.evaluation.sampling, found.held_out if found.has_pairs else None)
