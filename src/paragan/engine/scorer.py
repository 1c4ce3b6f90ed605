"""Who scores a run: against targets where there are pairs, else by a judge, ready made or trained on the run's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.seams import Source, paired
from paragan.engine.evaluate import Evaluator, PairEvaluator, Score
from paragan.engine.extractors import EXTRACTORS, beside
from paragan.engine.judge import Judge, ready_made, train_or_load
from paragan.engine.options import ScoreOptions
from paragan.game.player import Player
from paragan.game.prior import Prior

_AT_CHANCE = (
    "score: the judge tells which way up images are for {:.0%} of unseen ones, {:.0%} by chance: its numbers may say "
    "little here; look at the pictures, or sort the images into classes"
)


@dataclass(frozen=True)
class Keeping:
    """folder: where a trained judge is kept; must: it is an error if it cannot be. say: receives a line of doubt."""

    folder: Path
    must: bool
    say: Callable[[str], None]
    world: World


def scorer(
    options: ScoreOptions, train: Source, held_out: Source, path: str | None, keeping: Keeping
) -> Callable[[Player, Prior], Score] | None:
    """Scores a generator player; None: scoring is off. path: of the data, beside which ready-made weights may lie.

    A judge of the run's own is trained, or read, when the first score is due; one from a file is read now, so that a
    missing file is told before anything is written.
    """
    if options.extractor != "none" and (pairs := paired(held_out)) is not None:
        if options.extractor != "judge":
            told = f"score.extractor: found {options.extractor}, but data of pairs is scored against its targets"
            raise ConfigError(f"{told}; leave it out, or set it to none")
        return PairEvaluator(pairs, options.num_images, options.mode)

    found = evaluator(options, train, held_out, path, keeping)
    return None if found is None else lambda player, prior: found()(player, prior)


def evaluator(
    options: ScoreOptions, train: Source, held_out: Source, path: str | None, keeping: Keeping
) -> Callable[[], Evaluator] | None:
    """Who judges images of this data, made when it is first asked for; None: scoring is off."""

    def scored_by(judge: Judge) -> Evaluator:
        return Evaluator(judge, train, held_out, options.num_images, options.mode, keeping.world)

    if options.extractor == "none":
        return None
    if options.extractor in EXTRACTORS:
        weights = options.weights or beside(path, options.extractor)
        ready = scored_by(ready_made(options.extractor, Path(weights), train.shape[-1]))
        return lambda: ready

    @cache
    def trained() -> Evaluator:
        judge = train_or_load(train, held_out, keeping.folder, must_keep=keeping.must, world=keeping.world)
        if len(train.class_names) < 2 and judge.accuracy is not None and judge.accuracy < 1.5 / judge.num_classes:
            keeping.say(_AT_CHANCE.format(judge.accuracy, 1 / judge.num_classes))
        return scored_by(judge)

    return trained
