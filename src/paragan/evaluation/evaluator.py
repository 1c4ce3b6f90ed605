"""Evaluator of generators by a fixed protocol, which is recorded with the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.metric import Metric, Needs, SampleFeatures
from paragan.core.option_types import Choice
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.evaluation.chosen_metrics import ChosenMetric, choose_metrics, refuse_few
from paragan.evaluation.score import Score
from paragan.features._extractor import CLASSES, MAX_FOR_ACCURACY, FeatureExtractor, accuracy
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import SAYS, Mode, sample, sampling_network

# (first row, count) -> x_BCHW in [-1, 1], requested labels
Generate = Callable[[int, int], tuple[Tensor, Tensor | None]]

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
            found = f"data of {_size(self.train.shape)} in {classes} classes"
            raise ConfigError(
                f"evaluation.features: found {found}, but {extractor.name} expects "
                f"{_expected(extractor)}; use evaluation.features=auto"
            )
        self.metrics = choose_metrics(self.chosen, available_needs(self.train, extractor.num_classes is not None))
        refuse_few(self.metrics, self.num_images)

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator on the latents of the stream "score"."""
        return self.score(sample_player(player, prior, self.num_images, self.mode))

    def score(self, generate: Generate) -> Score:
        """Score `num_images` rows of `generate`. Raises `ConfigError` if images are not finite."""
        real_values = self._real_values  # computed once, before the clock starts
        began = time.monotonic()
        fakes = self._fakes(generate)
        values = self._measure(fakes, fakes)
        real = {name: real_values[name] for name in values if name in real_values}
        directions = {metric.name(self.extractor.name): metric.kind.direction for metric in self.metrics}
        directions = {name: directions[name] for name in values}
        return Score(values, self.num_images, self.protocol, real, directions, time.monotonic() - began)

    def _fakes(self, generate: Generate) -> SampleFeatures:
        """Compute the features of all rows, gathered on every rank. Collective.

        Blocks are distributed round-robin. Every rank calls the generator, which may be sharded,
        equally often. In mode `train-stats` every rank generates all images, because batches must
        be equal.
        """
        world = self.world if self.mode == "eval" else ALONE
        size = self._at_once
        blocks = [(first, min(size, self.num_images - first)) for first in range(0, self.num_images, size)]
        mine = blocks[world.rank :: world.size] or blocks[-1:]
        mine += blocks[-1:] * (-(-len(blocks) // world.size) - len(mine))
        found = []
        for first, count in mine:
            x, labels = generate(first, count)
            require_finite(x, world)
            found.append(self.extractor.compute(x, labels if has_classes(self.train) else None))
        return _whole(SampleFeatures.concatenate(found), [count for _, count in blocks], world)

    @property
    def _at_once(self) -> int:
        """Images per generator call; in mode `eval` fewer large ones, to limit memory."""
        _, height, width = self.train.shape
        return _AT_ONCE if self.mode != "eval" else max(4, min(_AT_ONCE, _AT_ONCE * 64 * 64 // (height * width)))

    @property
    def num_reference(self) -> int:
        """Number of real training images that samples are compared with."""
        return min(self.num_images, len(self.train))

    @property
    def num_real(self) -> int:
        """Number of held-out images scored like generated ones; 0: too few for a metric."""
        count = min(self.num_images, len(self.held_out))
        return count if all(metric.count(count) for metric in self.metrics) else 0

    def num_compared(self, metric: ChosenMetric) -> int:
        """Return the number of reference images of a metric, or 0 if they are too few."""
        split = self.held_out if metric.kind.reference == "held_out" else self.train
        return metric.count(min(self.num_images, len(split)))

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        extractor = self.extractor
        reference = {"split": "train", "num_images": self.num_reference}
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
            "real": {"split": "held_out", "num_images": self.num_real},
            "mode": self.mode,
            "sampling": f"averaged generator where there is one, {SAYS[self.mode]}, full precision, labels uniform",
        }

    def _compared(self, metric: ChosenMetric) -> dict[str, Any]:
        """Return the reference and the settings of one metric."""
        kind = metric.kind
        options = {} if metric.options is None else asdict(metric.options)
        return {"split": kind.reference, "num_images": self.num_compared(metric), **kind.settings, **options}

    def _measure(self, samples: SampleFeatures, covering: SampleFeatures) -> dict[str, float]:
        """Compute the metrics. covering: samples for metrics whose reference is held-out images."""
        values = {}
        for metric in self.metrics:
            count = self.num_compared(metric)
            if not count or (Needs.LABELS in metric.kind.needs and not self._has_labels(samples)):
                continue
            if metric.kind.reference == "held_out":
                compared = covering.rows(0, count)
            else:
                compared = samples.rows(0, metric.count(len(samples)))
            values[metric.name(self.extractor.name)] = self._of_no_images(metric).update(compared).compute()
        return values

    def _has_labels(self, samples: SampleFeatures) -> bool:
        return has_classes(self.train) and samples.requested_labels_B is not None

    def _of_no_images(self, metric: ChosenMetric) -> Metric:
        name = metric.kind.name
        if name not in self._empty:
            real = self._held_out if metric.kind.reference == "held_out" else self.reference
            self._empty[name] = metric.empty(real.rows(0, self.num_compared(metric)))
        return self._empty[name]

    @cached_property
    def _real_values(self) -> dict[str, float]:
        """Metrics of held-out images in place of generated ones, as a reference.

        Training images replace the held-out ones. Empty if they are too few. Also emits the warning
        about the extractor, once, before the first score.
        """
        warning = accuracy_warning(self.extractor, self._accuracy)
        if warning is not None:
            self.warn(warning)
        return self._measure(self._held_out.rows(0, self.num_real), self.reference) if self.num_real else {}

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
        return self.extractor.compute_rows(self.train, self.num_reference)

    @cached_property
    def _held_out(self) -> SampleFeatures:
        """Features of the held-out images, as many as any metric needs."""
        compared = [self.num_compared(metric) for metric in self.metrics if metric.kind.reference == "held_out"]
        enough = max(self.num_real, *compared, 0)
        count = MAX_FOR_ACCURACY if self.extractor.accuracy is None else enough
        return self.extractor.compute_rows(self.held_out, max(enough, min(count, len(self.held_out))))


def has_classes(source: Source) -> bool:
    """Return whether the images have classes to distinguish, those of an extractor's logits."""
    return len(source.class_names) > 1


def available_needs(train: Source, has_logits: bool = True) -> frozenset[Needs]:
    """Return what metrics can read about images of this data."""
    labels = {Needs.LABELS} if has_classes(train) else set()
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


def sample_player(player: Player, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """Return a function that samples rows of `total` images; latents depend on seed and `total`."""
    return sample_generator(sampling_network(player), prior, total, mode)


def sample_generator(generator: CalledNetwork, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """Return a function that generates rows of `total` images by a network, as `sample_player`."""
    z_BZ, y_B = prior.draw("score", Rows(0, 0, total, total))

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        z = z_BZ[first : first + count]
        y = None if y_B is None else y_B[first : first + count]
        x = sample(generator, z, y, mode=mode, seed=prior.seed, first=first)
        return x, y if prior.uses_labels else None

    return generate


def _whole(mine: SampleFeatures, counts: list[int], world: World) -> SampleFeatures:
    """Gather blocks of `counts` rows of all ranks, in order, without padding blocks. Collective."""
    if world.size == 1:
        return mine
    columns = [
        None if column is None else world.gather_tensors(column)
        for column in (mine.features_BF, mine.logits_BK, mine.requested_labels_B)
    ]
    found: list[SampleFeatures] = []
    for number, count in enumerate(counts):
        rank = number % world.size
        before = sum(counts[number % world.size : number : world.size])
        theirs = SampleFeatures(*(None if column is None else column[rank] for column in columns))  # type: ignore[arg-type]
        found.append(theirs.rows(before, before + count))
    return SampleFeatures.concatenate(found)


def require_finite(x_BCHW: Tensor, world: World = ALONE) -> Tensor:
    """Return the images, or raise `ConfigError` on all ranks if some are not finite. Collective."""
    if world.any(not x_BCHW.isfinite().all()):
        raise ConfigError(
            "score: generated images are not finite, the run has diverged; go back to an earlier checkpoint"
        )
    return x_BCHW


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
