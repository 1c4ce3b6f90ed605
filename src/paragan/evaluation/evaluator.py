"""How good a generator is: the same images, reference and settings every time, told beside the numbers."""

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
from paragan.evaluation.judge import CLASSES, JUDGE, MOST_MEASURED, TURNS, Judge, accuracy, accuracy_warning
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import SAYS, Mode, sample, sampling_network
from paragan.metrics import class_variance_mean, class_variance_min, coverage, frechet, label_accuracy
from paragan.metrics._sample_features import SampleFeatures

# (first row, count) -> x_BCHW in [-1, 1], classes asked for
Generate = Callable[[int, int], tuple[Tensor, Tensor | None]]

_AT_ONCE = 250
_MOST_FOR_COVERAGE = 2000  # it takes time with the square of the number


@dataclass(frozen=True)
class Score:
    """metrics: values by name. num_images: generated. protocol: what has to be equal where two scores are compared.

    real: the values of held-out real images by the same metrics, to read `metrics` against; empty: there are none.
    seconds: what it took, without what only the first score has to do.
    """

    metrics: dict[str, float]
    num_images: int
    protocol: dict[str, Any]
    real: dict[str, float] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        """As the record and `score.json` have it."""
        real = {"real": self.real} if self.real else {}
        return {**self.metrics, **real, "num_images": self.num_images, "protocol": self.protocol}


@dataclass
class Evaluator:
    """Scores generators against one data set. What it needs of the real images is computed at the first score and kept.

    warn: receives one line at the first score where the judge is often wrong. Raises `ConfigError` where the judge
    reads other images than these, or there are too few.
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
                f"score.extractor: found {found}, but {self.judge.name} expects {expected}; use score.extractor=auto"
            )
        if self.num_images <= coverage.K:
            raise ConfigError(f"score.num_images: found {self.num_images} images, expected at least {coverage.K + 1}")

    def __call__(self, player: Player, prior: Prior) -> Score:
        """The score of a player's sampling generator on latents of their own stream."""
        return self.score(sample_player(player, prior, self.num_images, self.mode))

    def score(self, generate: Generate) -> Score:
        """The score of `num_images` rows of `generate`; label accuracy and class variance only where it tells classes.

        Raises `ConfigError` where images are not finite: no distance could be told.
        """
        real_values = self._real_values  # computed once, before the clock starts
        began = time.monotonic()
        fakes = self._fakes(generate)
        values = self._measure(fakes, fakes.rows(0, self.num_covered))
        real = {name: real_values[name] for name in values if name in real_values}
        return Score(values, self.num_images, self.protocol, real, time.monotonic() - began)

    def _fakes(self, generate: Generate) -> SampleFeatures:
        """All rows, judged: blocks are dealt to the ranks, and every rank has the whole in the end.

        Each makes equally many calls of the generator, which may lie in pieces over them. Where training statistics are
        taken, ranks must see the same images.
        """
        world = self.world if self.mode == "eval" else ALONE
        size = self._at_once
        blocks = [(first, min(size, self.num_images - first)) for first in range(0, self.num_images, size)]
        mine = blocks[world.rank :: world.size] or blocks[-1:]
        mine += blocks[-1:] * (-(-len(blocks) // world.size) - len(mine))
        judged = []
        for first, count in mine:
            x, asked = generate(first, count)
            require_finite(x, world)
            judged.append(self.judge.judge(x, asked if self._recognises else None))
        return _whole(SampleFeatures.concatenate(judged), [count for _, count in blocks], world)

    @property
    def _at_once(self) -> int:
        """Images that are made together: fewer large ones, for memory, but where what is with them changes them."""
        _, height, width = self.train.shape
        return _AT_ONCE if self.mode != "eval" else max(4, min(_AT_ONCE, _AT_ONCE * 64 * 64 // (height * width)))

    def distance(self, fakes: SampleFeatures) -> float:
        """The Frechet distance of judged images from the training images; infinite where they are not finite."""
        if not fakes.features_BF.isfinite().all():
            return float("inf")
        return self._frechet.update(fakes).compute()

    @property
    def _recognises(self) -> bool:
        """Whether the judge's classes are those of the data."""
        return len(self.train.class_names) > 1

    @property
    def num_reference(self) -> int:
        """Real training images that samples are compared with."""
        return min(self.num_images, len(self.train))

    @property
    def num_covered(self) -> int:
        """Held-out images to be covered, and generated images to cover them; 0: too few to tell coverage by."""
        count = min(self.num_images, len(self.held_out), _MOST_FOR_COVERAGE)
        return count if count > coverage.K else 0

    @property
    def num_real(self) -> int:
        """Held-out images that are scored like generated ones, to have values to compare with."""
        return min(self.num_images, len(self.held_out)) if self.num_covered else 0

    @cached_property
    def protocol(self) -> dict[str, Any]:
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
        """Of `judged`; its first rows, `covering`, are those that coverage counts."""
        values = {f"{frechet.Metric.name}[{self.judge.name}]": self._frechet.update(judged).compute()}
        if judged.requested_labels_B is not None and self._recognises:
            for metric in (label_accuracy.Metric, class_variance_min.Metric, class_variance_mean.Metric):
                values[metric.name] = metric.from_reference(self._reference).update(judged).compute()
        if self._coverage is not None:
            values[coverage.Metric.name] = self._coverage.update(covering).compute()
        return values

    @cached_property
    def _real_values(self) -> dict[str, float]:
        """Held-out images in place of generated ones; training images cover them, since they cannot cover themselves.

        Empty where there are too few. Says the warning, since this comes before the first score.
        """
        warning = accuracy_warning(self.judge.name, self._task, self._accuracy, self.judge.num_classes)
        if warning is not None:
            self.warn(warning)
        if not self.num_real:
            return {}
        return self._measure(self._held_out.rows(0, self.num_real), self._reference.rows(0, self.num_covered))

    @property
    def _task(self) -> str:
        """What the judge tells of images; a judge of data without classes has learnt `Turned`."""
        return TURNS if self.judge.name == JUDGE and not self._recognises else CLASSES

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
        """As many as any number here is computed of."""
        enough = max(self.num_real, self.num_covered)
        count = MOST_MEASURED if self.judge.accuracy is None else enough
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
    """Rows of `total` images of the sampling generator; the latents depend on the run's seed and `total` alone."""
    return sample_generator(sampling_network(player), prior, total, mode)


def sample_generator(generator: CalledNetwork, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """The same of a network that is ready to sample from."""
    z_BZ, y_B = prior.draw("score", Rows(0, 0, total, total))

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        z, y = z_BZ[first : first + count], None if y_B is None else y_B[first : first + count]
        x = sample(generator, z, y, mode=mode, seed=prior.seed, first=first)
        return x, y if prior.uses_labels else None

    return generate


def _whole(mine: SampleFeatures, counts: list[int], world: World) -> SampleFeatures:
    """Blocks of `counts` rows that were dealt to the ranks, in order; what a rank has beyond its blocks is left out."""
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
    """The same images. `ConfigError` on all ranks where some are not finite."""
    if world.any(not x_BCHW.isfinite().all()):
        raise ConfigError(
            "score: found generated images that are not finite, expected numbers: the run has diverged; "
            "go back to an earlier checkpoint"
        )
    return x_BCHW


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
