"""Advice on common failures of GAN training: rules over the telemetry and scores of a run.

Every threshold has its source next to it; "measured" refers to the runs in docs/telemetry.md. A
rule needs its sign in several observations in a row, because a single one is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite, nan
from typing import Any

History = Sequence[Mapping[str, Any]]

# Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", figure 1: the
# fewer images, the sooner D overfits; with a few thousand, long before G has converged.
MANY_IMAGES = 1000
OVERFITTING = 0.5  # of r_v, in [-1, 1]. Measured: at most 0.34 in good runs, 0.6 to 1 on 64 images
# of D's accuracies: a weak D's r_v is noise. Measured: at most 0.12; 0.4 to 0.8 on 64 images
OVERFITTING_GAP = 0.2
SATURATED = 0.9  # share. Measured: at most 0.59 in a good run, 0.91 to 0.99 with a strong D
CERTAIN = 0.2  # share. Measured: 0.22 to 0.76 with learning rates too large, D mostly wrong
RIGHT = 0.98  # accuracy. Measured: at most 0.95 in good runs, 1.00 with a strong D or a frozen G
UNDECIDED = 0.6  # accuracy at a bad score (a good run ends there, too). Measured: <= 0.1, D frozen
IMPROVED = 1 / 3  # of the first distance. Measured: 0.2 to 0.31 after 8 to 16 kimg, 0.4 to 1 if bad
RATIO = 100.0  # either way. Measured: 0.17 to 1.2; 0.001 if D is frozen, 115 to 30,000 if G is
# of the run's best (at most 1). Measured: 0.7 to 1 in good runs, 0.6 on 64 images, 0.2 collapsed
LOW_DIVERSITY = 0.4
SOME_COVERAGE = 0.2  # below, a decrease is noise. Measured: 0.01 to 0.04 in runs that never trained
COVERAGE_LOST = 0.5  # of its best. Measured: >= 0.9 in a good run, 0.2 at raised learning rates
WORSE = 2.0  # times the best distance. Measured: 1.5 in a good run, 3.2 at raised learning rates
EXPLODED = 3.0  # times the largest before. Measured: at most 1.4, 35 at raised learning rates


@dataclass(frozen=True)
class Advice:
    """One piece of advice.

    name: of the rule. value: that triggered it. means, try_: likely cause and remedy.
    """

    name: str
    value: float
    means: str
    try_: str

    @property
    def line(self) -> dict[str, Any]:
        """Values of the event."""
        return {"name": self.name, "value": self.value, "means": self.means, "try": self.try_}


@dataclass(frozen=True)
class AdviceRule:
    """One rule. sees: returns the value that triggers it at the end of a history, else None."""

    name: str
    sees: Callable[[History], float | None]
    means: str
    try_: str


def advise(history: History, num_images: int, augmented: bool = False, has_pairs: bool = False) -> tuple[Advice, ...]:
    """Return the advice of all rules that hold now; the caller reports each of them once.

    history: values of telemetry and scores by name, oldest first; missing and non-finite values are
    skipped. num_images: training images. augmented: D's inputs are augmented. has_pairs: the data
    are pairs, whose images cannot be augmented without their conditions.
    """
    triggered = [(rule, rule.sees(history)) for rule in RULES]
    given = [Advice(rule.name, value, rule.means, rule.try_) for rule, value in triggered if value is not None]
    if augmented or has_pairs:
        given = [replace(advice, try_=advice.try_.replace(f"{_AUGMENT}, ", "")) for advice in given]
    return (*([] if augmented or num_images >= MANY_IMAGES else [_few(num_images, has_pairs)]), *given)


_AUGMENT = "augment.name=diffaugment"


def _few(num_images: int, has_pairs: bool) -> Advice:
    means = "The data set is small: D usually memorizes it before G has learned much."
    other = "data.flip, a larger data.load_size" if has_pairs else _AUGMENT
    return Advice("few_images", num_images, means, f"Try {other}, or add {'pairs' if has_pairs else 'images'}.")


def _overfits(history: History) -> float | None:
    looks = _newest(history, 2, "d/overfitting", "d/accuracy_train", "d/accuracy_held_out")
    holds = all(ratio > OVERFITTING and train - held_out > OVERFITTING_GAP for ratio, train, held_out in looks)
    return looks[-1][0] if looks and holds else None


def _saturated(history: History) -> float | None:
    looks = _newest(history, 2, "d/saturation")
    return looks[-1][0] if looks and all(share > SATURATED for (share,) in looks) else None


def _too_strong(history: History) -> float | None:
    looks = _newest(history, 3, "d/accuracy_train", "d/accuracy_fake")
    holds = all(min(accuracies) > RIGHT for accuracies in looks) and not _better(history)
    return min(looks[-1]) if looks and holds else None


def _too_weak(history: History) -> float | None:
    looks = _newest(history, 4, "d/accuracy_train", "d/accuracy_fake", "d/saturation")
    holds = all((train + fake) / 2 < UNDECIDED and share < CERTAIN for train, fake, share in looks)
    return sum(looks[-1][:2]) / 2 if looks and holds and not _better(history) else None


def _certain_and_wrong(history: History) -> float | None:
    looks = _newest(history, 2, "d/accuracy_train", "d/accuracy_fake", "d/saturation")
    holds = all((train + fake) / 2 < 0.5 and share > CERTAIN for train, fake, share in looks)
    return sum(looks[-1][:2]) / 2 if looks and holds else None


def _out_of_balance(history: History) -> float | None:
    looks = _newest(history, 3, "gradient_norm_ratio")
    ratios = [ratio for (ratio,) in looks]
    return ratios[-1] if ratios and (min(ratios) > RATIO or max(ratios) < 1 / RATIO) else None


def _same_samples(history: History) -> float | None:
    values = _all(history, "diversity")
    if len(values) < 3 or max(values[-2:]) > LOW_DIVERSITY * min(1, max(values)):
        return None
    return values[-1]


def _coverage_lost(history: History) -> float | None:
    values = _all(history, "coverage")
    if len(values) < 3 or max(values) < SOME_COVERAGE or max(values[-2:]) > COVERAGE_LOST * max(values):
        return None
    return values[-1]


def _diverges(history: History) -> float | None:
    values = _distances(history)
    if len(values) < 3 or min(values[-2:]) < WORSE * min(values):
        return None
    return values[-1]


def _exploded(history: History) -> float | None:
    """Return the largest jump over all earlier values; training itself lets them grow slowly."""
    trained = [moment for moment in history if _number(moment.get("kimg", 1)) > 0]
    jumps = [
        values[-1] / max(values[:-1])
        for side in "gd"
        if len(values := _all(trained, f"{side}/top_singular_value")) > 2 and max(values[:-1]) > 0
    ]
    return max(jumps) if jumps and max(jumps) > EXPLODED else None


def _better(history: History) -> bool:
    """Return whether the score has improved much since the first one; True without scores."""
    values = _distances(history)
    return len(values) < 2 or values[-1] < IMPROVED * values[0]


def _distances(history: History) -> list[float]:
    """Return Frechet distances by the newest score's extractor, oldest first; lower is better."""
    names = [name for name in chain.from_iterable(history) if name.startswith("fd[")]
    return _all(history, names[-1]) if names else []


def _all(history: History, name: str) -> list[float]:
    return [value for (value,) in _rows(history, name)]


def _newest(history: History, count: int, *names: str) -> list[tuple[float, ...]]:
    """Return the last `count` observations that have all of `names`; empty if they are fewer."""
    rows = _rows(history, *names)
    return rows[-count:] if len(rows) >= count else []


def _rows(history: History, *names: str) -> list[tuple[float, ...]]:
    rows = [tuple(_number(moment.get(name)) for name in names) for moment in history]
    return [row for row in rows if all(map(isfinite, row))]


def _number(value: object) -> float:
    """Return a value of a record as a float; NaN for anything that is not a number."""
    try:
        return float(value) if isinstance(value, (int, float)) else nan
    except OverflowError:  # hundreds of digits
        return nan


RULES = (
    AdviceRule(
        "d_overfits",
        _overfits,
        "D overfits: it recognizes its training images and takes held-out ones for generated, which leads G to copy.",
        "If the score no longer falls, try augment.name=diffaugment, more images or a stronger r1 in penalties.",
    ),
    AdviceRule(
        "d_saturated",
        _saturated,
        "D's loss is saturated on nearly all images, so its gradients vanish: D is too strong or its logits diverged.",
        "Try a smaller d.optimizer.lr, r1 in penalties, or fewer d.updates_per_step.",
    ),
    AdviceRule(
        "d_too_strong",
        _too_strong,
        "D classifies every image correctly and the score does not improve: D is too strong for G.",
        "Try a larger g.optimizer.lr, a smaller d.optimizer.lr, fewer d.updates_per_step, or r1 in penalties.",
    ),
    AdviceRule(
        "d_too_weak",
        _too_weak,
        "D cannot distinguish real from generated images although the score is bad: G gets no useful gradient.",
        "Try a larger d.optimizer.lr, more d.updates_per_step, a smaller weight in penalties, or a larger D.",
    ),
    AdviceRule(
        "d_certain_and_wrong",
        _certain_and_wrong,
        "D is confident on many images and wrong on most: the learning rates of both players are too large.",
        "Try g.optimizer.lr and d.optimizer.lr ten times smaller, or clipping (g.max_norm, d.max_norm).",
    ),
    AdviceRule(
        "gradients_out_of_balance",
        _out_of_balance,
        "One player's gradients are far larger than the other's: one player hardly learns or diverges.",
        "Try another ratio of g.optimizer.lr to d.optimizer.lr, or max_norm for the larger (g.max_norm, d.max_norm).",
    ),
    AdviceRule(
        "mode_collapse",
        _same_samples,
        "Samples are much closer together than real images are: mode collapse.",
        "Try going back to the best checkpoint, a smaller g.optimizer.lr, r1 in penalties, or a larger train.batch.",
    ),
    AdviceRule(
        "coverage_lost",
        _coverage_lost,
        "Samples cover far fewer of the held-out images than before: G has dropped modes.",
        "Try going back to the best checkpoint, a smaller g.optimizer.lr, g.ema, or r1 in penalties.",
    ),
    AdviceRule(
        "score_diverges",
        _diverges,
        "The score has been far from its best for several evaluations: the run has overfitted or diverged.",
        "Try the best checkpoint, a decay of both learning rates (g.schedule, d.schedule), or r1 in penalties.",
    ),
    AdviceRule(
        "weights_explode",
        _exploded,
        "A layer's largest singular value has jumped far above all earlier values, which often precedes collapse.",
        "Try smaller g.optimizer.lr and d.optimizer.lr, spectral norm in D, or orthogonal or r1 in penalties.",
    ),
)
