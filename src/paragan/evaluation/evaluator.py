"""Evaluator: scores generators by a fixed protocol, which is recorded with the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.protocols import Source
from paragan.core.types import Rows
from paragan.evaluation.judge import CLASSES, JUDGE, MAX_FOR_ACCURACY, TURNS, Judge, accuracy, accuracy_warning
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import SAYS, Mode, sample, sampling_network
from paragan.metrics import class_variance_mean, class_variance_min, coverage, frechet, label_accuracy
from paragan.metrics._sample_features import SampleFeatures

# (first row, count) -> x_BCHW in [-1, 1], requested labels
Generate = Callable[[int, int], tuple[Tensor, Tensor | None]]

_AT_ONCE = 250
_MAX_FOR_COVERAGE = 2000  # its cost is quadratic in this number


@dataclass(frozen=True)
class Score:
    """The score of a generator.

    metrics: values by name. num_images: number of generated images. protocol: must be equal where two scores are
    compared. real: values of held-out real images by the same metrics, as a reference; empty where there are none.
    seconds: duration without the work that only the first score has.
    """

    metrics: dict[str, float]
    num_images: int
    protocol: dict[str, Any]
    real: dict[str, float] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        """The score as values of an event and of `score.json`."""
        real = {"real": self.real} if self.real else {}
        return {**self.metrics, **real, "num_images": self.num_images, "protocol": self.protocol}


@dataclass
class Evaluator:
    """Scores generators against one data set; statistics of the real images are computed once, at the first score.

    warn: receives one line at the first score where the judge's accuracy is low.
    Raises `ConfigError` where the judge reads images of another shape, or there are too few images.
    """

    judge: Judge
    train: Source
    held_out: Source
    num_images: int
    mode: Mode = "eval"
    world: World = ALONE
    warn: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        classes = len(self.train.class_names)
        if self.judge.shape != self.train.shape or (classes > 1 and classes != self.judge.num_classes):
            found = f"data of {_size(self.train.shape)} in {classes} classes"
            expected = f"{_size(self.judge.shape)} in {self.judge.num_classes} classes"
            raise ConfigError(
                f"evaluation.features: found {found}, but {self.judge.name} expects {expected}; "
                "use evaluation.features=auto"
            )
        if self.num_images <= coverage.K:
            raise ConfigError(
                f"evaluation.num_images: found {self.num_images} images, expected at least {coverage.K + 1}"
            )

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator on the latents of the stream "score"."""
        return self.score(sample_player(player, prior, self.num_images, self.mode))

    def score(self, generate: Generate) -> Score:
        """Score `num_images` rows of `generate`; label accuracy and class variance only where it returns labels.

        Raises `ConfigError` where images are not finite.
        """
        real_values = self._real_values  # computed once, before the clock starts
        began = time.monotonic()
        fakes = self._fakes(generate)
        values = self._measure(fakes, fakes.rows(0, self.num_covered))
        real = {name: real_values[name] for name in values if name in real_values}
        return Score(values, self.num_images, self.protocol, real, time.monotonic() - began)

    def _fakes(self, generate: Generate) -> SampleFeatures:
        """Features of all rows, gathered on every rank. Collective.

        Blocks are distributed round-robin. Every rank makes the same number of calls of the generator, which may be
        sharded. In mode `train-stats` every rank generates all images, because batches must be equal.
        """
        world = self.world if self.mode == "eval" else ALONE
        size = self._at_once
        blocks = [(first, min(size, self.num_images - first)) for first in range(0, self.num_images, size)]
        mine = blocks[world.rank :: world.size] or blocks[-1:]
        mine += blocks[-1:] * (-(-len(blocks) // world.size) - len(mine))
        judged = []
        for first, count in mine:
            x, labels = generate(first, count)
            require_finite(x, world)
            judged.append(self.judge.judge(x, labels if self._has_classes else None))
        return _whole(SampleFeatures.concatenate(judged), [count for _, count in blocks], world)

    @property
    def _at_once(self) -> int:
        """Images per generator call; in mode `eval` fewer large ones, to limit memory."""
        _, height, width = self.train.shape
        return _AT_ONCE if self.mode != "eval" else max(4, min(_AT_ONCE, _AT_ONCE * 64 * 64 // (height * width)))

    def distance(self, fakes: SampleFeatures) -> float:
        """The Frechet distance to the training images; infinite where features are not finite."""
        if not fakes.features_BF.isfinite().all():
            return float("inf")
        return self._frechet.update(fakes).compute()

    @property
    def _has_classes(self) -> bool:
        """Whether the data has classes, which are then the judge's."""
        return len(self.train.class_names) > 1

    @property
    def num_reference(self) -> int:
        """Number of real training images that samples are compared with."""
        return min(self.num_images, len(self.train))

    @property
    def num_covered(self) -> int:
        """Number of held-out and of generated images for coverage; 0: too few."""
        count = min(self.num_images, len(self.held_out), _MAX_FOR_COVERAGE)
        return count if count > coverage.K else 0

    @property
    def num_real(self) -> int:
        """Number of held-out images that are scored like generated ones, as a reference."""
        return min(self.num_images, len(self.held_out)) if self.num_covered else 0

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        return {
            "extractor": self.judge.name,
            "extractor_task": self._task,
            "extractor_accuracy": self._accuracy,
            "extractor_sha256": self.judge.sha256,
            "extractor_crop": self.judge.crop,
            "reference": {"split": "train", "num_images": self.num_reference},
            "coverage": {"split": "held_out", "num_images": self.num_covered, "k": coverage.K},
            "real": {"split": "held_out", "num_images": self.num_real},
            "mode": self.mode,
            "sampling": f"averaged generator where there is one, {SAYS[self.mode]}, full precision, labels uniform",
        }

    def _measure(self, judged: SampleFeatures, covering: SampleFeatures) -> dict[str, float]:
        """Compute the metrics. covering: the first rows of `judged`, for coverage."""
        values = {f"{frechet.Metric.name}[{self.judge.name}]": self._frechet.update(judged).compute()}
        if judged.requested_labels_B is not None and self._has_classes:
            for metric in (label_accuracy.Metric, class_variance_min.Metric, class_variance_mean.Metric):
                values[metric.name] = metric.from_reference(self._reference).update(judged).compute()
        if self._coverage is not None:
            values[coverage.Metric.name] = self._coverage.update(covering).compute()
        return values

    @cached_property
    def _real_values(self) -> dict[str, float]:
        """The metrics of held-out images in place of generated ones; for coverage, training images take their place.

        Empty where there are too few. Also emits the warning about the judge, once, before the first score.
        """
        warning = accuracy_warning(self.judge.name, self._task, self._accuracy, self.judge.num_classes)
        if warning is not None:
            self.warn(warning)
        if not self.num_real:
            return {}
        return self._measure(self._held_out.rows(0, self.num_real), self._reference.rows(0, self.num_covered))

    @property
    def _task(self) -> str:
        """The judge's task; a judge of data without classes is trained on `RotatedSource`."""
        return TURNS if self.judge.name == JUDGE and not self._has_classes else CLASSES

    @cached_property
    def _accuracy(self) -> float | None:
        if self.judge.accuracy is not None or self._held_out.requested_labels_B is None:
            return self.judge.accuracy
        return accuracy(self._held_out)

    @cached_property
    def _reference(self) -> SampleFeatures:
        return self.judge.judge_rows(self.train, self.num_reference)

    @cached_property
    def _held_out(self) -> SampleFeatures:
        """Features of the held-out images, as many as any metric needs."""
        enough = max(self.num_real, self.num_covered)
        count = MAX_FOR_ACCURACY if self.judge.accuracy is None else enough
        return self.judge.judge_rows(self.held_out, max(enough, min(count, len(self.held_out))))

    @cached_property
    def _frechet(self) -> frechet.Metric:
        return frechet.Metric.from_reference(self._reference)

    @cached_property
    def _coverage(self) -> coverage.Metric | None:
        if not self.num_covered:
            return None
        return coverage.Metric.from_reference(self._held_out.rows(0, self.num_covered))


def sample_player(player: Player, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """Generate rows of `total` images by the sampling generator; latents depend on the run's seed and `total` only."""
    return sample_generator(sampling_network(player), prior, total, mode)


def sample_generator(generator: CalledNetwork, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """Generate rows of `total` images by a network; see `sample_player`."""
    z_BZ, y_B = prior.draw("score", Rows(0, 0, total, total))

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        z, y = z_BZ[first : first + count], None if y_B is None else y_B[first : first + count]
        x = sample(generator, z, y, mode=mode, seed=prior.seed, first=first)
        return x, y if prior.uses_labels else None

    return generate


def _whole(mine: SampleFeatures, counts: list[int], world: World) -> SampleFeatures:
    """Gather the blocks of `counts` rows of all ranks, in order, without the padding blocks. Collective."""
    if world.size == 1:
        return mine
    columns = [
        None if column is None else world.gather_tensors(column)
        for column in (mine.features_BF, mine.logits_BK, mine.requested_labels_B)
    ]
    found: list[SampleFeatures] = []
    for number, count in enumerate(counts):
        rank, before = number % world.size, sum(counts[number % world.size : number : world.size])
        theirs = SampleFeatures(*(None if column is None else column[rank] for column in columns))  # type: ignore[arg-type]
        found.append(theirs.rows(before, before + count))
    return SampleFeatures.concatenate(found)


def require_finite(x_BCHW: Tensor, world: World = ALONE) -> Tensor:
    """Return the images. Raises `ConfigError` on all ranks where some are not finite. Collective."""
    if world.any(not x_BCHW.isfinite().all()):
        raise ConfigError(
            "score: generated images are not finite, the run has diverged; go back to an earlier checkpoint"
        )
    return x_BCHW


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
