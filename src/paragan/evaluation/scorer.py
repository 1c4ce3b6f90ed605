"""Scorers of a run: images are compared with targets (pairs) or by an extractor's features."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import Choice
from paragan.evaluation.chosen_metrics import check_enough, choose_metrics
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.extractor_fit import available_needs, knows_other_images
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.score import Score
from paragan.features import auto
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.features.judge import JUDGE
from paragan.game.player import Player
from paragan.game.prior import Prior


def resolve_features(options: EvaluationOptions, dataset: str, shape: tuple[int, int, int]) -> Choice | None:
    """Return the chosen extractor, with `auto` resolved for this data set; None: scoring is off."""
    choice = options.features
    return auto.resolve(dataset, shape) if choice is not None and choice.name == "auto" else choice


def extractor_name(choice: Choice) -> str:
    """Return the recorded name of an extractor; of outside code and of a program, that of its file."""
    if choice.name == "exported" and choice.options.weights is not None:
        return re.sub(r"\W", "_", Path(choice.options.weights).stem)
    return choice.name.removesuffix(".py").rpartition("/")[2].rpartition(".")[2]


def build_scorer(options: EvaluationOptions, context: ExtractorContext) -> Callable[[Player, Prior], Score] | None:
    """Build the scorer of a player; None: scoring is off.

    options: resolved. An extractor that is a function is trained or read at the first score; others
    are read now, so that a missing file is reported before anything is written.
    """
    held_out = context.held_out
    if options.features is not None and held_out.has_pairs:
        if options.features.name != JUDGE:  # to which the default, `auto`, resolves for pairs
            raise ConfigError(
                f"evaluation.features={options.features.name} is not used: data of pairs is "
                "scored against its targets; leave it out, or set it to null"
            )
        from paragan.evaluation.pair_evaluator import PairEvaluator

        return PairEvaluator(held_out=held_out, options=options, log=context.log)
    evaluator = build_evaluator(options, context)
    return None if evaluator is None else lambda player, prior: evaluator()(player, prior)


def build_evaluator(options: EvaluationOptions, context: ExtractorContext) -> Callable[[], Evaluator] | None:
    """Build a function that returns the evaluator of this data; None: scoring is off.

    An extractor that is right on fewer held-out images than twice chance was trained on other images,
    such as digits in place of clothes: the judge takes its place, which is said.
    """
    choice = options.features
    if choice is None:
        return None
    check_enough(choose_metrics(options.metrics, available_needs(context.train)), options.num_images)
    dtype = getattr(torch, options.dtype)
    context = replace(context, name=extractor_name(choice), dtype=dtype, batch_size=options.batch_size)
    prepared = registry.load_module("features", choice.name).prepare(choice.options, context)

    if isinstance(prepared, FeatureExtractor):
        _evaluator_by(prepared, options, context)  # report an extractor for other images before anything is written

    @cache
    def evaluator() -> Evaluator:
        by_choice = _evaluator_by(prepared() if callable(prepared) else prepared, options, context)
        is_unfit = knows_other_images(by_choice.extractor, by_choice.accuracy)
        return _judge_evaluator(by_choice, options, context) if is_unfit else by_choice

    return evaluator


def _evaluator_by(extractor: FeatureExtractor, options: EvaluationOptions, context: ExtractorContext) -> Evaluator:
    return Evaluator(
        extractor=extractor,
        train=context.train,
        held_out=context.held_out,
        num_images=options.num_images,
        mode=options.sampling,
        chosen=options.metrics,
        resamples=options.resamples,
        world=context.world,
        log=context.log,
    )


def _judge_evaluator(unfit: Evaluator, options: EvaluationOptions, context: ExtractorContext) -> Evaluator:
    """Return the evaluator by the judge, in place of one whose extractor knows other images, and say so."""
    context.log(
        f"score     the extractor {unfit.extractor.name} is right on {unfit.accuracy:.1%} of held-out images, less "
        "than twice chance, as it was trained on other images; scores use a classifier trained on your images "
        "instead (evaluation.features chooses another)"
    )
    judge_options = registry.options("features", JUDGE)()
    judge = registry.load_module("features", JUDGE).prepare(judge_options, replace(context, name=JUDGE))
    return _evaluator_by(judge(), options, context)
