"""Scorers of a run: comparison with targets for data of pairs, else an extractor that is part of the package, read
from a file, or trained on the run's data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.interrupt import StopRequested
from paragan.core.protocols import Source
from paragan.evaluation import classifier, packaged_extractors
from paragan.evaluation.evaluator import Evaluator, Score
from paragan.evaluation.extractors import EXTRACTORS, find_weights
from paragan.evaluation.judge import JUDGE, Judge, load_packaged, load_pretrained, train_or_load
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.pair_evaluator import PairEvaluator
from paragan.game.player import Player
from paragan.game.prior import Prior

_AUTO = "auto"
_STEPS_TO_ESTIMATE = 5
_PERIOD_S = 10.0  # between two lines of progress


@dataclass(frozen=True)
class ExtractorCache:
    """Where and how a judge is trained.

    folder: of the trained judge. must: failing to write it is an error. say: receives progress and warnings.
    world: all ranks. stop: True ends the training of a judge; collective.
    """

    folder: Path
    must: bool
    say: Callable[[str], None]
    world: World = ALONE
    stop: Callable[[], bool] = lambda: False


def resolve_extractor(options: EvaluationOptions, dataset: str, shape: tuple[int, int, int]) -> EvaluationOptions:
    """Replace `auto` by the packaged extractor of this data set and size, else by the run's judge."""
    if options.features != _AUTO:
        return options
    name: Any = packaged_extractors.find_packaged(dataset, shape) or JUDGE
    return replace(options, features=name)


def describe_extractor(options: EvaluationOptions) -> str:
    """Describe the extractor of resolved options in one line, for the start of a run."""
    name = options.features
    assert name is not None
    if name in packaged_extractors.PACKAGED:
        what, accuracy = next(iter(packaged_extractors.extractor_info(name)["accuracy"].items()))
        return f"by the extractor {name} of the package, right on {accuracy:.1%} of {what}"
    return f"by the extractor {name}, read from a file"


def build_scorer(
    options: EvaluationOptions, train: Source, held_out: Source, path: str | None, keeping: ExtractorCache
) -> Callable[[Player, Prior], Score] | None:
    """Build the scorer of a player; None: scoring is off.

    options: resolved. path: of the data, to find weights next to it. A judge is trained or read at the first score;
    other extractors are read now, so that a missing file is reported before anything is written.
    """
    if options.features is not None and held_out.has_pairs:
        if options.features != JUDGE:
            raise ConfigError(
                f"evaluation.features={options.features} is not used: data of pairs is scored against its targets; "
                "leave it out, or set it to null"
            )
        return PairEvaluator(held_out, options.num_images, options.mode)

    found = build_evaluator(options, train, held_out, path, keeping)
    return None if found is None else lambda player, prior: found()(player, prior)


def build_evaluator(
    options: EvaluationOptions, train: Source, held_out: Source, path: str | None, keeping: ExtractorCache
) -> Callable[[], Evaluator] | None:
    """Build a function that returns the evaluator of this data; None: scoring is off."""

    def scored_by(judge: Judge) -> Evaluator:
        return Evaluator(judge, train, held_out, options.num_images, options.mode, keeping.world, keeping.say)

    if options.features is None:
        return None
    if options.weights and options.features not in EXTRACTORS:
        readers = ", ".join(EXTRACTORS)
        raise ConfigError(
            f"evaluation.weights is not read by the extractor {options.features!r}; name one of {readers}"
        )
    if options.features != JUDGE:
        ready = scored_by(_read(options, path, train.shape[-1]))
        return lambda: ready

    @cache
    def trained() -> Evaluator:
        progress = _TrainingProgress(len(train), keeping.say, keeping.stop)
        must, world = keeping.must, keeping.world
        return scored_by(train_or_load(train, held_out, keeping.folder, 0, must, world, progress))

    return trained


def _read(options: EvaluationOptions, path: str | None, size: int) -> Judge:
    """Load the packaged extractor, or the one of a file."""
    name = options.features
    assert name is not None
    if name in EXTRACTORS:
        return load_pretrained(name, Path(options.weights or find_weights(path, name)), size)
    return load_packaged(name, size)


@dataclass
class _TrainingProgress:
    """Prints the progress of a judge's training, and ends it where the run is to stop."""

    num_images: int
    say: Callable[[str], None]
    stop: Callable[[], bool]
    _began: float = field(default_factory=time.monotonic)
    _said: float = 0.0

    def __call__(self, steps: int) -> None:
        """Called before each step. Raises `StopRequested`."""
        if self.stop():
            raise StopRequested
        now = time.monotonic()
        if steps == 0:
            self._began = now
            return
        left_s = (now - self._began) / steps * (classifier.STEPS - steps)
        if steps == _STEPS_TO_ESTIMATE:
            self.say(f"judge     training on {self.num_images:,} images, about {left_s:.0f} s")
            self._said = now
        elif self._said and now - self._said >= _PERIOD_S:
            self.say(f"judge     step {steps} of {classifier.STEPS}, about {left_s:.0f} s left")
            self._said = now
