"""Evaluator of generators by a fixed protocol, which is recorded with the numbers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError, DivergedError
from paragan.core.interrupt import StopRequested
from paragan.core.metric import ClassifierTest, Metric, Needs, SampleFeatures, SplitFeatures
from paragan.core.option_types import Choice
from paragan.core.printable import ProgressLines
from paragan.core.source import Source, dtype_name
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.chosen_metrics import ChosenMetric, check_enough, choose_metrics, number_of
from paragan.evaluation.extractor_fit import accuracy_warning, available_needs, check_accepted, classifies_data
from paragan.evaluation.generated_features import Generate, compute_features, row_blocks, sample_generator
from paragan.evaluation.interval import half_sample_interval
from paragan.evaluation.reference_features import real_features, real_images
from paragan.evaluation.score import FailureLog, Score
from paragan.features.base import classifier
from paragan.features.base.extractor import MAX_FOR_ACCURACY, FeatureExtractor, accuracy
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import MODE_DESCRIPTIONS, Mode, sampling_network, steps_protocol

_AT_ONCE = 250  # images of up to 64 px per call of the generator
_CLASSIFIER_SEED = 0
_MAX_TRAIN = 60_000  # training images among which copies are searched


@dataclass(kw_only=True)
class Evaluator:
    """Evaluator of generators against one data set.

    `Metric.reference` says which real images a metric compares with, `_num_compared` how many. Their features are
    computed once, at the first score. chosen: metrics that a config names; None: all that apply. log: receives lines of
    progress, and a warning at the first score if the accuracy of the extractor is low. resamples: halves of the images
    from which intervals are estimated. Raises `ConfigError` if the extractor does not accept the images, or a metric
    needs more images.
    """

    extractor: FeatureExtractor
    train: Source
    held_out: Source
    num_images: int
    mode: Mode = "eval"
    chosen: Sequence[Choice] | None = None
    resamples: int = 0
    world: World = ALONE
    log: Callable[[str], None] = lambda line: None
    _empty: dict[str, Metric] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._failures = FailureLog(self.log)
        check_accepted(self.extractor, self.train)
        self.metrics = choose_metrics(self.chosen, available_needs(self.train, self.extractor))
        check_enough(self.metrics, self.num_images)

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator."""
        return self.score_network(sampling_network(player), prior, is_sharded=player.is_sharded)

    def score_network(self, generator: CalledNetwork, prior: Prior, is_sharded: bool = False) -> Score:
        """Score a generator on the latents of the stream "score". is_sharded: its forward has collectives."""
        score = self.score(sample_generator(generator, prior, self.num_images, self.mode), is_sharded=is_sharded)
        return replace(score, protocol={**score.protocol, **prior.protocol, **steps_protocol(generator.module)})

    def score(self, generate: Generate, is_sharded: bool = False) -> Score:
        """Score `num_images` rows of `generate`; `DivergedError` if images are not finite."""
        real_values = self._real_values  # computed once, before the clock starts
        began = time.monotonic()
        world = self.world if self.mode == "eval" else ALONE  # in mode `train-stats` batches must be equal on all ranks
        blocks = row_blocks(self.num_images, self._block_size)
        fakes = compute_features(generate, self.extractor, blocks, world, self.log, self._needs_images, is_sharded)
        values = self._measure(fakes)
        return Score(
            metrics=values,
            num_images=self.num_images,
            protocol=self.protocol,
            real={name: real_values[name] for name in values if name in real_values},
            directions={self._recorded_name(m): m.kind.direction for m in self._applied(fakes)},
            intervals=self._intervals(fakes, values),
            seconds=time.monotonic() - began,
        )

    @property
    def _block_size(self) -> int:
        """Images per generator call: fewer if they are large, for their memory. Batch statistics need all 250."""
        _, height, width = self.train.shape
        return _AT_ONCE if self.mode != "eval" else max(4, min(_AT_ONCE, _AT_ONCE * 64 * 64 // (height * width)))

    @property
    def _num_train(self) -> int:
        return min(self.num_images, len(self.train))

    @property
    def _num_held_out(self) -> int:
        return min(self.num_images, len(self.held_out))

    @property
    def _num_real(self) -> int:
        """Number of held-out images scored like generated ones; 0: too few for a metric."""
        return self._num_held_out if all(metric.count(self._num_held_out) for metric in self.metrics) else 0

    def _num_compared(self, metric: ChosenMetric) -> int:
        """Return the number of real images that a metric compares with, of `both` the training ones; 0: too few."""
        num_held_out = metric.count(self._num_held_out)
        match metric.kind.reference:
            case "held_out":
                return num_held_out
            case "both":
                return min(_MAX_TRAIN, len(self.train)) if num_held_out else 0
            case "classifier":
                return min(MAX_FOR_ACCURACY, len(self.held_out))
            case _:
                return metric.count(self._num_train)

    def _recorded_name(self, metric: ChosenMetric) -> str:
        return metric.recorded_name(self.extractor, self.num_images)

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        extractor = self.extractor
        reference = {"split": "train", "num_images": self._num_train}
        compared = {metric.kind.name: self._compared(metric) for metric in self.metrics}
        return {
            "extractor": extractor.name,
            "extractor_task": extractor.task,
            "extractor_accuracy": self.accuracy,
            "extractor_sha256": extractor.sha256,
            "extractor_crop": extractor.crop,
            "extractor_resize": extractor.resize if self.train.shape != extractor.shape else None,
            "extractor_dtype": dtype_name(extractor.dtype),
            **({"extractor_settings": dict(extractor.settings)} if extractor.settings else {}),
            "reference": reference,
            **{name: values for name, values in compared.items() if values != reference},
            "real": {"split": "held_out", "num_images": self._num_real},
            "mode": self.mode,
            "sampling": MODE_DESCRIPTIONS[self.mode],
        }

    def _compared(self, metric: ChosenMetric) -> dict[str, Any]:
        """Return the reference and the settings of one metric."""
        kind = metric.kind
        options = {} if metric.options is None else asdict(metric.options)
        return {"split": kind.reference, "num_images": self._num_compared(metric), **kind.settings, **options}

    def _measure(self, samples: SampleFeatures, train_samples: SampleFeatures | None = None) -> dict[str, float]:
        """Compute the metrics of images. train_samples: in their place where held-out images are the reference."""
        values = {}
        for_held_out = samples if train_samples is None else train_samples
        for metric in self._applied(samples):
            is_held_out = metric.kind.reference in ("held_out", "classifier")
            name = self._recorded_name(metric)
            try:
                compared = self._compared_rows(metric, for_held_out if is_held_out else samples)
                values[name] = number_of(self._empty_metric(metric).update(compared).compute())
            except (StopRequested, DivergedError):
                raise
            except Exception as error:  # of any kind: a metric may be a user's; the run goes on without its value
                self._failures.add(name, error)
        return values

    def _applied(self, samples: SampleFeatures) -> list[ChosenMetric]:
        """Return the metrics that have enough real images, and labels if they need them."""
        has_labels = samples.requested_labels_B is not None
        return [m for m in self.metrics if self._num_compared(m) and (has_labels or Needs.LABELS not in m.kind.needs)]

    def _intervals(self, fakes: SampleFeatures, values: dict[str, float]) -> dict[str, tuple[float, float]]:
        """Return the intervals of these values by name; a metric may have none."""
        intervals = {}
        for metric in self.metrics:
            name = self._recorded_name(metric)
            if name not in values or not metric.kind.has_interval:
                continue
            compared = self._compared_rows(metric, fakes)
            empty = self._empty_metric(metric)

            def compute(rows: Tensor, empty: Metric = empty, compared: SampleFeatures = compared) -> float:
                return number_of(empty.update(compared.select(rows)).compute())

            intervals[name] = half_sample_interval(
                values[name], compute, len(compared), self.resamples, metric.kind.is_share
            )
        return {name: ends for name, ends in intervals.items() if ends is not None}

    def _compared_rows(self, metric: ChosenMetric, samples: SampleFeatures) -> SampleFeatures:
        """Return the images of a score that a metric compares."""
        if metric.kind.reference == "held_out":
            return samples.rows(0, self._num_compared(metric))
        return samples.rows(0, metric.count(len(samples)))

    def _empty_metric(self, metric: ChosenMetric) -> Metric:
        """Return the metric of no images, with its reference."""
        name = self._recorded_name(metric)
        if name not in self._empty:
            self._empty[name] = metric.kind.from_reference(self._reference_of(metric), metric.options)
        return self._empty[name]

    def _reference_of(self, metric: ChosenMetric) -> SampleFeatures | SplitFeatures | ClassifierTest:
        count = self._num_compared(metric)
        match metric.kind.reference:
            case "held_out":
                return self._held_out.rows(0, count)
            case "classifier":
                return classifier_test(self.held_out, self.log)
            case "both":
                held_out = self._held_out.rows(0, metric.count(self._num_held_out))
                return SplitFeatures(self._train.rows(0, count), held_out)
            case _:
                return self.train_reference.rows(0, count)

    @cached_property
    def _real_values(self) -> dict[str, float]:
        """Metrics of held-out images in place of generated ones: what a perfect generator could reach.

        Metrics that compare with held-out images get training images, or they would compare images with themselves.
        Empty if they are too few. Also emits the warning about the extractor, once, before the first score.
        """
        if warning := accuracy_warning(self.extractor, self.accuracy, self._num_real):
            self.log(warning)
        if not self._num_real:
            return {}
        return self._measure(self._held_out.rows(0, self._num_real), train_samples=self.train_reference)

    @cached_property
    def accuracy(self) -> float | None:
        """Share of held-out images that the extractor assigns to their class; None if it is unknown."""
        if not self._measures_accuracy or self._held_out.requested_labels_B is None:
            return self.extractor.accuracy
        return accuracy(self._held_out)

    @property
    def _measures_accuracy(self) -> bool:
        return self.extractor.accuracy is None and classifies_data(self.extractor)

    @cached_property
    def train_reference(self) -> SampleFeatures:
        """Features of as many training images as are generated. Raises `ConfigError` if they are all equal."""
        features = self._train.rows(0, self._num_train)
        if len(features) > 1 and (features.features_BF == features.features_BF[0]).all():
            raise ConfigError(
                f"evaluation.features: {self.extractor.name} returns equal features for all real images: the "
                "images are equal, or it was trained on others; set evaluation.features=null to train without scores"
            )
        if self._needs_images:
            return replace(features, image_BCHW=real_images(self.train, self._num_train))
        return features

    @cached_property
    def _train(self) -> SampleFeatures:
        """Features of the training images, as many as any metric needs."""
        searched = [self._num_compared(metric) for metric in self.metrics if metric.kind.reference == "both"]
        return real_features(self.extractor, self.train, max(self._num_train, *searched, 0), self.log, self.world)

    @property
    def _needs_images(self) -> bool:
        return any(Needs.IMAGES in metric.kind.needs for metric in self.metrics)

    @cached_property
    def _held_out(self) -> SampleFeatures:
        """Features of the held-out images: those that are compared, and those that the accuracy is measured on."""
        num_for_accuracy = min(MAX_FOR_ACCURACY, len(self.held_out)) if self._measures_accuracy else 0
        count = max(self._num_held_out, num_for_accuracy)
        return real_features(self.extractor, self.held_out, count, self.log, self.world)


def classifier_test(held_out: Source, log: Callable[[str], None]) -> ClassifierTest:
    """Return a test of generated images: the accuracy on held-out ones of a classifier trained on them.

    held_out: up to 10,000 images are used. log: receives lines of progress.
    """

    def accuracy_after(image_NCHW: Tensor, label_N: Tensor) -> float:
        generated = InMemorySource(image_NCHW, label_N, held_out.class_names)
        unit = "steps of a classifier of generated images"
        progress = ProgressLines(label="score", unit=unit, total=classifier.STEPS, log=log)
        net = classifier.train_classifier(generated, _CLASSIFIER_SEED, progress)
        classes = len(held_out.class_names)
        trained = FeatureExtractor(name="cas", network=net, shape=held_out.shape, num_classes=classes, sha256="")
        return accuracy(trained.compute_rows(held_out, min(MAX_FOR_ACCURACY, len(held_out))))

    return ClassifierTest(accuracy_after, held_out.shape)
