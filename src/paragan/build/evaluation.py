"""From a resolved config to what scores its generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.core.dist import ALONE, World
from paragan.core.protocols import Source
from paragan.evaluation import scorer as scorers
from paragan.evaluation.evaluator import Score
from paragan.evaluation.options import EvaluationOptions
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.metrics import frechet


def never() -> bool:
    """For ranks that do not score together: the question whether to stop is put to all ranks at once."""
    return False


def scorer(
    config: RunConfig,
    found: Data,
    folder: Path,
    say: Callable[[str], None],
    must_keep: bool = True,
    world: World = ALONE,
    stop: Callable[[], bool] = never,
) -> Callable[[Player, Prior], Score] | None:
    """Scores a generator player; None: scoring is off. must_keep, stop: as `scorers.Keeping` has them."""
    return scorers.build_scorer(*scoring(config, found, scorers.ExtractorCache(folder, must_keep, say, world, stop)))


def scoring(
    config: RunConfig, found: Data, keeping: scorers.ExtractorCache
) -> tuple[EvaluationOptions, Source, Source, str | None, scorers.ExtractorCache]:
    """The arguments of `scorers.scorer` and `scorers.evaluator`, with the extractor that `auto` stands for."""
    path = getattr(config.data.options, "path", None)
    train, held_out = found.scored
    return options(config, train), train, held_out, path, keeping


def options(config: RunConfig, train: Source) -> EvaluationOptions:
    """How the run is scored, with the extractor that `auto` stands for."""
    return scorers.resolve_extractor(config.evaluation, config.data.name, train.shape)


def distance_name(config: RunConfig, train: Source) -> str:
    """Of the Frechet distance, as scores have it."""
    return f"{frechet.Metric.name}[{options(config, train).features}]"
