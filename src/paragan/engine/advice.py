"""Advice on common failures of GAN training: rules over the telemetry and scores of a run.

Every threshold has its source next to it; "measured" refers to the runs in docs/telemetry.md. A
rule needs its sign in several observations in a row, because a single one is noise.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite, nan
from operator import itemgetter
from typing import Any

import torch

from paragan.game.gan import GAN
from paragan.game.player import Player

History = Sequence[Mapping[str, Any]]
Sign = Callable[[History], float | None]

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
# Metrics that the rules read, by their names in a score: a distance (lower is better) and a share.
DISTANCE = "fd["
COVERAGE = "coverage"
SOME_COVERAGE = 0.2  # below, a decrease is noise. Measured: 0.01 to 0.04 in runs that never trained
COVERAGE_LOST = 0.5  # of its best. Measured: >= 0.9 in a good run, 0.2 at raised learning rates
WORSE = 2.0  # times the best distance. Measured: 1.5 in a good run, 3.2 at raised learning rates
EXPLODED = 3.0  # times the largest before. Measured: at most 1.4, 35 at raised learning rates


@dataclass(frozen=True, kw_only=True)
class AdviceRule:
    """One rule: a sign of a failure, its likely cause, and the remedy.

    sign: returns the value that triggers the rule at the end of a history, else None. tries: settings to
    change, the first ones first. begin: of the remedy.
    """

    name: str
    sign: Sign
    means: str
    tries: tuple[str, ...]
    begin: str = "Try"

    def remedy(self, settled: Container[str]) -> str:
        """Return the remedy without the settings that are on already."""
        *others, last = [text for text in self.tries if text not in settled]
        joined = f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last
        return f"{self.begin} {joined}."


def advise(
    history: History, num_images: int, settled: Container[str] = (), has_pairs: bool = False
) -> tuple[dict[str, Any], ...]:
    """Return the advice of all rules that hold now; the caller reports each of them once.

    Each has `name` of the rule, `value` that triggered it, `means` and `try`: likely cause and
    remedy. history: values of telemetry and scores by name, oldest first; missing and non-finite
    values are skipped. num_images: training images, 0 of a stream. settled: words of the remedies that
    are on already, which are left out. has_pairs: the data are pairs, whose images cannot be augmented without
    their conditions.
    """
    is_small = 0 < num_images < MANY_IMAGES and AUGMENT not in settled
    advice = [_few(num_images, has_pairs)] if is_small else []
    for rule in RULES:
        value = rule.sign(history)
        if value is not None:
            left_out = {text for text in rule.tries if text in settled or (has_pairs and text == AUGMENT)}
            remedy = rule.remedy(left_out)
            advice.append({"name": rule.name, "value": value, "means": rule.means, "try": remedy})
    return tuple(advice)


AUGMENT = "augment.name=diffaugment"


def settled_remedies(gan: GAN, players: Mapping[str, Player]) -> set[str]:
    """Return the words of remedies that a game has already."""
    g = players.get("g")
    penalties = chain.from_iterable(gan.penalties.values())
    in_use = {f"{penalty.name} in penalties": True for penalty in penalties}
    is_fp32 = g is None or g.calling.dtype in (None, torch.float32)
    remedies = in_use | {
        AUGMENT: gan.augment is not None,
        "g.precision=fp32": is_fp32,
        "g.ema": g is None or g.ema is not None,
    }
    return {text for text, is_settled in remedies.items() if is_settled}


def _few(num_images: int, has_pairs: bool) -> dict[str, Any]:
    means = "The data set is small: D usually memorizes it before G has learned much."
    other = "data.flip, a larger data.load_size" if has_pairs else AUGMENT
    remedy = f"Try {other}, or add {'pairs' if has_pairs else 'images'}."
    return {"name": "few_images", "value": num_images, "means": means, "try": remedy}


def _lasting(
    count: int, names: Sequence[str], holds: Callable[..., bool], value: Callable[..., float] = max, bad: bool = False
) -> Sign:
    """Return a sign that holds for the last `count` observations of all `names`.

    value: to report, of the values of the last one. bad: the score must also be bad.
    """

    def sign(history: History) -> float | None:
        rows = _rows(history, *names)[-count:]
        if len(rows) < count or not all(holds(*row) for row in rows) or (bad and _has_improved(history)):
            return None
        return value(rows[-1])

    return sign


def _overfits(ratio: float, train: float, held_out: float) -> bool:
    return ratio > OVERFITTING and train - held_out > OVERFITTING_GAP


def _out_of_balance(history: History) -> float | None:
    ratios = _all(history, "gradient_norm_ratio")[-3:]
    return ratios[-1] if len(ratios) == 3 and (min(ratios) > RATIO or max(ratios) < 1 / RATIO) else None


def _same_samples(history: History) -> float | None:
    values = _all(history, "diversity")
    has_fallen = len(values) > 2 and max(values[-2:]) <= LOW_DIVERSITY * min(1, max(values))
    return values[-1] if has_fallen else None


def _coverage_lost(history: History) -> float | None:
    values = _all(history, COVERAGE)
    has_fallen = len(values) > 2 and max(values[-2:]) <= COVERAGE_LOST * max(values)
    return values[-1] if has_fallen and max(values) >= SOME_COVERAGE else None


def _diverges(history: History) -> float | None:
    values = _distances(history)
    return values[-1] if len(values) > 2 and min(values[-2:]) >= WORSE * min(values) else None


def _exploded(history: History) -> float | None:
    """Return the largest jump over all earlier values; training itself lets them grow slowly."""
    trained = [moment for moment in history if _number(moment.get("kimg", 1)) > 0]
    jumps = [
        values[-1] / max(values[:-1])
        for side in "gd"
        if len(values := _all(trained, f"{side}/top_singular_value")) > 2 and max(values[:-1]) > 0
    ]
    return max(jumps) if jumps and max(jumps) > EXPLODED else None


def _has_improved(history: History) -> bool:
    """Return whether the score has improved much since the first one; True without scores."""
    values = _distances(history)
    return len(values) < 2 or values[-1] < IMPROVED * values[0]


def _distances(history: History) -> list[float]:
    """Return distances by the newest score's extractor, oldest first; lower is better."""
    names = [name for name in chain.from_iterable(history) if name.startswith(DISTANCE)]
    return _all(history, names[-1]) if names else []


def _all(history: History, name: str) -> list[float]:
    return [value for (value,) in _rows(history, name)]


def _rows(history: History, *names: str) -> list[tuple[float, ...]]:
    rows = [tuple(_number(moment.get(name)) for name in names) for moment in history]
    return [row for row in rows if all(map(isfinite, row))]


def _number(value: object) -> float:
    """Return a value of a record as a float; NaN for anything that is not a number."""
    try:
        return float(value) if isinstance(value, (int, float)) else nan
    except OverflowError:  # hundreds of digits
        return nan


_JUDGED = ("d/accuracy_train", "d/accuracy_fake", "d/saturation")


def _accuracy(values: Sequence[float]) -> float:
    return (values[0] + values[1]) / 2


RULES = (
    AdviceRule(
        name="d_overfits",
        sign=_lasting(2, ("d/overfitting", "d/accuracy_train", "d/accuracy_held_out"), _overfits, value=itemgetter(0)),
        means="D overfits: it recognizes its training images and takes held-out ones for generated, "
        "which leads G to copy.",
        tries=("augment.name=diffaugment", "more images", "a stronger r1 in penalties"),
        begin="If the score no longer falls, try",
    ),
    AdviceRule(
        name="d_saturated",
        sign=_lasting(2, ("d/saturation",), lambda share: share > SATURATED),
        means="D's loss is saturated on nearly all images, so its gradients vanish: D is too strong "
        "or its logits diverged.",
        tries=("a smaller d.optimizer.lr", "r1 in penalties", "fewer d.updates_per_step"),
    ),
    AdviceRule(
        name="d_too_strong",
        sign=_lasting(3, _JUDGED[:2], lambda *accuracies: min(accuracies) > RIGHT, value=min, bad=True),
        means="D classifies every image correctly and the score does not improve: D is too strong for G.",
        tries=("a larger g.optimizer.lr", "a smaller d.optimizer.lr", "fewer d.updates_per_step", "r1 in penalties"),
    ),
    AdviceRule(
        name="d_too_weak",
        sign=_lasting(
            4, _JUDGED, lambda *row: _accuracy(row) < UNDECIDED and row[2] < CERTAIN, value=_accuracy, bad=True
        ),
        means="D cannot distinguish real from generated images although the score is bad: G gets no useful gradient.",
        tries=("a larger d.optimizer.lr", "more d.updates_per_step", "a smaller weight in penalties", "a larger D"),
    ),
    AdviceRule(
        name="d_certain_and_wrong",
        sign=_lasting(2, _JUDGED, lambda *row: _accuracy(row) < 0.5 and row[2] > CERTAIN, value=_accuracy),
        means="D is confident on many images and wrong on most: the learning rates of both players are too large.",
        tries=("g.optimizer.lr and d.optimizer.lr ten times smaller", "clipping (g.max_norm, d.max_norm)"),
    ),
    AdviceRule(
        name="gradients_out_of_balance",
        sign=_out_of_balance,
        means="One player's gradients are far larger than the other's: one player hardly learns or diverges.",
        tries=("another ratio of g.optimizer.lr to d.optimizer.lr", "max_norm for the larger (g.max_norm, d.max_norm)"),
    ),
    AdviceRule(
        name="mode_collapse",
        sign=_same_samples,
        means="Samples are much closer together than real images are: mode collapse.",
        tries=(
            "going back to the best checkpoint",
            "a smaller g.optimizer.lr",
            "r1 in penalties",
            "a larger train.batch",
        ),
    ),
    AdviceRule(
        name="coverage_lost",
        sign=_coverage_lost,
        means="Samples cover far fewer of the held-out images than before: G has dropped modes.",
        tries=("going back to the best checkpoint", "a smaller g.optimizer.lr", "g.ema", "r1 in penalties"),
    ),
    AdviceRule(
        name="score_diverges",
        sign=_diverges,
        means="The score has been far from its best for several evaluations: the run has overfitted or diverged.",
        tries=("the best checkpoint", "a decay of both learning rates (g.schedule, d.schedule)", "r1 in penalties"),
    ),
    AdviceRule(
        name="weights_explode",
        sign=_exploded,
        means="A layer's largest singular value has jumped far above all earlier values, "
        "which often precedes collapse.",
        tries=(
            "g.precision=fp32",
            "smaller g.optimizer.lr and d.optimizer.lr",
            "orthogonal in penalties",
            "r1 in penalties",
        ),
    ),
)
