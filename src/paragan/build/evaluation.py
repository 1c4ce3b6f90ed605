"""Construction of what scores the generators of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.core.source import Source
from paragan.evaluation import scorer as scorers
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.score import Score
from paragan.features._extractor import ExtractorContext
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.metrics import fd


def never() -> bool:
    """Return False: a stop check is collective, and only some ranks of a split world score."""
    return False


def extractor_context(
    config: RunConfig, found: Data, folder: Path, say: Callable[[str], None], device: torch.device, **rest: Any
) -> ExtractorContext:
    """Return what the extractor of a run may read.

    folder: of the run. rest: as in `ExtractorContext`.
    """
    train, held_out = found.scored
    path = getattr(config.data.options, "path", None)
    return ExtractorContext("", train, held_out, folder / "judge", path, device, say=say, **rest)


def scorer(config: RunConfig, context: ExtractorContext) -> Callable[[Player, Prior], Score] | None:
    """Return the function that scores a generator player; None: scoring is off."""
    return scorers.build_scorer(resolved(config, context.train), context)


def evaluator(config: RunConfig, context: ExtractorContext) -> Callable[[], Evaluator] | None:
    """Return a factory of the evaluator of generated images; None: scoring is off."""
    return scorers.build_evaluator(resolved(config, context.train), context)


def resolved(config: RunConfig, train: Source) -> EvaluationOptions:
    """Return the evaluation options, with the extractor that `auto` selects."""
    options = config.evaluation
    features = scorers.resolve_features(options, config.data.name, train.shape)
    return replace(options, features=features)


def distance_name(config: RunConfig, train: Source) -> str:
    """Return the name, as in scores, of the distance that compares mixtures of a grid."""
    chosen = resolved(config, train).features
    assert chosen is not None
    return f"{fd.Metric.name}[{scorers.extractor_name(chosen)}]"
