"""Evaluator of generators by a fixed protocol, which is recorded with the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.metric import Metric, Needs, SampleFeatures
from paragan.core.option_types import Choice
from paragan.core.source import Source
from paragan.evaluation.chosen_metrics import ChosenMetric, choose_metrics, refuse_few
from paragan.evaluation.generated_features import Generate, compute_features, sample_generator
from paragan.evaluation.score import Score
from paragan.features._extractor import CLASSES, MAX_FOR_ACCURACY, FeatureExtractor, accuracy
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import MODE_DESCRIPTIONS, Mode, sampling_network

_AT_ONCE = 250
_RELIABLE = 0.95  # a score by an extractor of lower accuracy is printed with a warning


@dataclass
class Evaluator:
    """Evaluator of generators against one data set.

    Statistics of the real images are computed once, at the first score. chosen: metrics that a
    config names; None: all that apply. warn: receives one line at the first score if the accuracy
    of the extractor is low. Raises `ConfigError` if the extractor does not accept the images, or a
    metric needs more images.
    """

    extractor: FeatureExtractor
    train: Source
    held_out: Source
    num_images: int
    mode: Mode = "eval"
    chosen: Sequence[Choice] | None = None
    world: World = ALONE
    warn: Callable[[str], None] = lambda line: None
    _empty: dict[str, Metric] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        classes = len(self.train.class_names)
        extractor = self.extractor
        classifies = extractor.num_classes is not None and classes > 1
        if not extractor.accepts(self.train.shape) or (classifies and classes != extractor.num_classes):
            raise ConfigError(
                f"evaluation.features={extractor.name} expects images of {_expected(extractor)}, but "
                f"the data has {_size(self.train.shape)} in {classes} classes; use evaluation.features=auto"
            )
        self.metrics = choose_metrics(self.chosen, available_needs(self.train, extractor.num_classes is not None))
        refuse_few(self.metrics, self.num_images)

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator."""
        return self.score_network(sampling_network(player), prior)

    def score_network(self, generator: CalledNetwork, prior: Prior) -> Score:
        """Score a generator on the latents of the stream "score"."""
        return self.score(sample_generator(generator, prior, self.num_images, self.mode))

    def score(self, generate: Generate) -> Score:
        """Score `num_images` rows of `generate`. Raises `ConfigError` if images are not finite."""
        real_values = self._real_values  # computed once, before the clock starts
        began = time.monotonic()
        # In mode `train-stats` every rank generates all images, because batches must be equal.
        world = self.world if self.mode == "eval" else ALONE
        fakes = compute_features(generate, self.extractor, self.num_images, self._block_size, world)
        values = self._measure(fakes, fakes)
        real = {name: real_values[name] for name in values if name in real_values}
        by_name = {metric.name(self.extractor.name): metric.kind for metric in self.metrics}
        directions = {name: by_name[name].direction for name in values}
        return Score(values, self.num_images, self.protocol, real, directions, time.monotonic() - began)

    @property
    def _block_size(self) -> int:
        """Images per generator call; in mode `eval` fewer large ones, to limit memory."""
        _, height, width = self.train.shape
        return _AT_ONCE if self.mode != "eval" else max(4, min(_AT_ONCE, _AT_ONCE * 64 * 64 // (height * width)))

    @property
    def _num_reference(self) -> int:
        return min(self.num_images, len(self.train))

    @property
    def _num_real(self) -> int:
        """Number of held-out images scored like generated ones; 0: too few for a metric."""
        count = min(self.num_images, len(self.held_out))
        return count if all(metric.count(count) for metric in self.metrics) else 0

    def _num_compared(self, metric: ChosenMetric) -> int:
        """Return the number of reference images of a metric, or 0 if they are too few."""
        split = self.held_out if metric.kind.reference == "held_out" else self.train
        return metric.count(min(self.num_images, len(split)))

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        extractor = self.extractor
        reference = {"split": "train", "num_images": self._num_reference}
        compared = {metric.kind.name: self._compared(metric) for metric in self.metrics}
        return {
            "extractor": extractor.name,
            "extractor_task": extractor.task,
            "extractor_accuracy": self._accuracy,
            "extractor_sha256": extractor.sha256,
            "extractor_crop": extractor.crop,
            "extractor_resize": extractor.resize if self.train.shape != extractor.shape else None,
            "extractor_dtype": str(extractor.dtype).removeprefix("torch."),
            "reference": reference,
            **{name: values for name, values in compared.items() if values != reference},
            "real": {"split": "held_out", "num_images": self._num_real},
            "mode": self.mode,
            "sampling": f"{MODE_DESCRIPTIONS[self.mode]}, labels uniform",
        }

    def _compared(self, metric: ChosenMetric) -> dict[str, Any]:
        """Return the reference and the settings of one metric."""
        kind = metric.kind
        options = {} if metric.options is None else asdict(metric.options)
        return {"split": kind.reference, "num_images": self._num_compared(metric), **kind.settings, **options}

    def _measure(self, samples: SampleFeatures, covering: SampleFeatures) -> dict[str, float]:
        """Compute the metrics. covering: samples for metrics whose reference is held-out images."""
        values = {}
        for metric in self.metrics:
            count = self._num_compared(metric)
            if not count or (Needs.LABELS in metric.kind.needs and samples.requested_labels_B is None):
                continue
            if metric.kind.reference == "held_out":
                compared = covering.rows(0, count)
                real = self._held_out
            else:
                compared = samples.rows(0, metric.count(len(samples)))
                real = self.reference
            name = metric.name(self.extractor.name)
            if name not in self._empty:
                self._empty[name] = metric.kind.from_reference(real.rows(0, count), metric.options)
            values[name] = self._empty[name].update(compared).compute()
        return values

    @cached_property
    def _real_values(self) -> dict[str, float]:
        """Metrics of held-out images in place of generated ones, as a reference.

        Training images replace the held-out ones. Empty if they are too few. Also emits the warning
        about the extractor, once, before the first score.
        """
        warning = accuracy_warning(self.extractor, self._accuracy)
        if warning is not None:
            self.warn(warning)
        return self._measure(self._held_out.rows(0, self._num_real), self.reference) if self._num_real else {}

    @cached_property
    def _accuracy(self) -> float | None:
        extractor = self.extractor
        is_unknown = extractor.accuracy is None and extractor.num_classes is not None
        if not is_unknown or self._held_out.requested_labels_B is None:
            return extractor.accuracy
        return accuracy(self._held_out)

    @cached_property
    def reference(self) -> SampleFeatures:
        """Features of the real training images."""
        return self.extractor.compute_rows(self.train, self._num_reference)

    @cached_property
    def _held_out(self) -> SampleFeatures:
        """Features of the held-out images, as many as any metric needs."""
        compared = [self._num_compared(metric) for metric in self.metrics if metric.kind.reference == "held_out"]
        enough = max(self._num_real, *compared, 0)
        count = MAX_FOR_ACCURACY if self.extractor.accuracy is None else enough
        return self.extractor.compute_rows(self.held_out, max(enough, min(count, len(self.held_out))))


def available_needs(train: Source, has_logits: bool = True) -> frozenset[Needs]:
    """Return what metrics can read about images of this data."""
    labels = {Needs.LABELS} if len(train.class_names) > 1 else set()
    logits = {Needs.LOGITS} if has_logits else set()
    return frozenset({Needs.FEATURES, *logits, *labels})


def accuracy_warning(extractor: FeatureExtractor, accuracy: float | None) -> str | None:
    """Return a warning for an extractor of low accuracy; None if it is high enough or unknown."""
    if accuracy is None or accuracy >= _RELIABLE:
        return None
    name = "the judge" if extractor.name == "judge" else f"the extractor {extractor.name}"
    if extractor.task == CLASSES:
        means = "its scores are rough; compare them with those of real images, in brackets"
        return f"warning: score: {name} is right on {accuracy:.1%} of held-out images; {means}"
    means = "compare its scores with those of real images, in brackets"
    assert extractor.num_classes is not None
    if accuracy < 1.5 / extractor.num_classes:
        chance = f"{1 / extractor.num_classes:.0%} by chance"
        means = f"{chance}, so its scores mean little; look at the samples, or add classes"
    return f"warning: score: {name} finds the rotation of {accuracy:.1%} of held-out images; {means}"


def _expected(extractor: FeatureExtractor) -> str:
    if extractor.num_classes is None:
        return _size(extractor.input_shape)
    return f"{_size(extractor.input_shape)} in {extractor.num_classes} classes"


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
