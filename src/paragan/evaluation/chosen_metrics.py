"""Metrics of a score: those that a config names, or the default ones that apply to the data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.metric import Metric, Needs
from paragan.core.option_types import Choice
from paragan.features.base.extractor import FeatureExtractor

_WORDS = {
    Needs.FEATURES: "features of images, which are not compared here",
    Needs.LOGITS: "the logits of a classifier, which evaluation.features does not have",
    Needs.CLASS_LOGITS: "a classifier of the data's classes, which evaluation.features is not",
    Needs.LABELS: "classes, which the data does not have",
    Needs.IMAGES: "generated images, which are not compared here",
    Needs.PAIRS: "pairs, which the data does not have",
    Needs.AUDIO: "audio of 1xN or 2xN samples, which the model does not generate",
    Needs.TOKENS: "tokens, which only a model for named tensors returns",
}
DEFAULTS = {  # by what decides whether they apply, in the order of a score's line
    Needs.FEATURES: ("fd", "label_accuracy", "class_variance_min", "class_variance_mean", "coverage"),
    Needs.PAIRS: ("l1", "psnr", "ssim"),
}


@dataclass(frozen=True)
class ChosenMetric:
    """A metric with its options."""

    kind: type[Metric]
    options: Any = None

    def recorded_name(self, extractor: FeatureExtractor, num_images: int) -> str:
        """Return the name under which values are recorded: `fd[judge]`, `coverage`, `fid@50k`."""
        published = extractor.published_names.get(self.kind.name)
        if published is not None:  # as papers have it: @50k for 50,000
            return f"{published}@{f'{num_images // 1000}k' if num_images % 1000 == 0 else num_images}"
        return f"{self.kind.name}[{extractor.name}]" if self.kind.names_extractor else self.kind.name

    def count(self, available: int) -> int:
        """Return how many of the available images the metric compares; 0: too few."""
        count = min(available, self.kind.max_images or available)
        return count if count >= self.kind.min_images else 0


def choose_metrics(choices: Sequence[Choice] | None, available: frozenset[Needs]) -> tuple[ChosenMetric, ...]:
    """Return the metrics of a score.

    choices: from the config; None: the default ones whose needs are available. Raises `ConfigError` for
    a metric that needs something else, for an empty list, and for two metrics of one name.
    """
    if choices is None:
        names = [name for need in DEFAULTS if need in available for name in DEFAULTS[need]]
        applicable = [_load(Choice(name, registry.options("metrics", name)())) for name in names]
        return tuple(metric for metric in applicable if metric.kind.needs <= available)
    metrics = tuple(map(_load, choices))
    if not metrics:
        raise ConfigError("evaluation.metrics is empty; name one, or set evaluation.features=null to switch scores off")
    for metric in metrics:
        _check_needs(metric, available)
    names = [metric.kind.name for metric in metrics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"evaluation.metrics has {twice[0]} twice; name each metric once")
    return metrics


def number_of(value: Any) -> float:
    """Return a metric's value as a number; `TypeError` or `ValueError` for others than numbers and tensors of one."""
    if isinstance(value, str):
        raise TypeError(f"compute returned the text {value[:40]!r}, not a number")
    number = float(value)
    if math.isnan(number):
        raise ValueError("compute returned NaN")
    return number


def reads_features(choices: Sequence[Choice] | None) -> bool:
    """Return whether one of these metrics needs an `Evaluator`, which has an extractor; None: the default ones."""
    needs = {Needs.FEATURES, Needs.LOGITS, Needs.CLASS_LOGITS, Needs.LABELS}
    return choices is None or any(_load(choice).kind.needs & needs for choice in choices)


def _check_needs(metric: ChosenMetric, available: frozenset[Needs]) -> None:
    missing = sorted(metric.kind.needs - available, key=lambda need: need.value)
    if missing:
        raise ConfigError(f"evaluation.metrics: {metric.kind.name} needs {_WORDS[missing[0]]}; leave it out")


def check_enough(metrics: Sequence[ChosenMetric], num_images: int) -> None:
    """Raise `ConfigError` if a score has fewer images than a metric needs."""
    for metric in metrics:
        if num_images < metric.kind.min_images:
            raise ConfigError(
                f"evaluation.num_images={num_images} is too few for {metric.kind.name}; use at "
                f"least {metric.kind.min_images}"
            )


def _load(choice: Choice) -> ChosenMetric:
    kind: type[Metric] = registry.load_module("metrics", choice.name).Metric
    return ChosenMetric(kind, choice.options)
