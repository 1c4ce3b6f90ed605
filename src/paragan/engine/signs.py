"""Signs of failures of GAN training: functions over the telemetry, scores and log points of a run.

Every threshold has its source next to it; "measured" refers to the runs in docs/internals/studies/telemetry.md. A
sign must hold several times in a row, because a single measurement is noise.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from math import inf, isfinite, nan
from typing import Any

Moment = Mapping[str, Any]  # values that were measured together
History = Sequence[Moment]
Sign = Callable[[History], float | None]
Condition = Callable[..., bool]  # of values that were measured together, as its arguments

OVERFITTING = 0.5  # of r_v, in [-1, 1]. Measured: at most 0.34 in good runs, 0.6 to 1 on 64 images
# of D's accuracies: a weak D's r_v is noise. Measured: at most 0.12; 0.4 to 0.8 on 64 images
OVERFITTING_GAP = 0.2
SATURATED = 0.9  # share. Measured: at most 0.59 in a good run, 0.91 to 0.99 with a strong D
CERTAIN = 0.2  # share. Measured: 0.22 to 0.76 with learning rates too large, D mostly wrong
RIGHT = 0.98  # accuracy. Measured: at most 0.95 in good runs, 1.00 with a strong D or a frozen G
UNDECIDED = 0.6  # accuracy at a bad score (a good run ends there, too). Measured: <= 0.1, D frozen
IMPROVED = 1 / 3  # of the first distance. Measured: 0.2 to 0.31 after 8 to 16 kimg, 0.4 to 1 if bad
RATIO = 100.0  # either way. Measured: 0.17 to 1.2; 0.001 if D is frozen, 115 to 30,000 if G is
# of the best diversity (at most 1) that samples have risen to. Measured: 0.5 and more in good runs, 0.2 collapsed
LOW_DIVERSITY = 0.4
LOWEST_DIVERSITY = 0.2  # of the best of all (at most 1): samples of the first kimg are noise, then nearly equal
# Names of rules of the advice whose signs are signs of a collapse, too.
D_SATURATED = "d_saturated"
D_CERTAIN_AND_WRONG = "d_certain_and_wrong"
MODE_COLLAPSE = "mode_collapse"
SCORE_DIVERGES = "score_diverges"
# Metrics that the rules read, by their names in a score: a distance (lower is better) and a share.
DISTANCE = "fd["
COVERAGE = "coverage"
SOME_COVERAGE = 0.2  # below, a decrease is noise. Measured: 0.01 to 0.04 in runs that never trained
COVERAGE_LOST = 0.5  # of its best. Measured: >= 0.9 in a good run, 0.2 at raised learning rates
WORSE = 2.0  # times the best distance. Measured: 1.5 in a good run, 3.2 at raised learning rates
EXPLODED = 3.0  # times the largest before. Measured: at most 1.4, 35 at raised learning rates
# Times the untrained one in the first kimg, and later times all but the last two. Measured: at most 1.5 in good
# runs; 2 to 28 at high rates, 1.9 to 2.4 in runs at usual rates that broke at 12 to 35 kimg
GROWN = 1.75
NUM_EARLY = 5  # measurements of telemetry
_TOP_SINGULAR_VALUE = "/top_singular_value"  # after the name of a player
LARGE = 100.0  # of a penalty on D. Measured: at most 3.7 in good runs, 667 and more in lost ones
LARGE_LOSS = 1000.0  # of D's adversarial loss: that of a Wasserstein D has no unit
UNREACHABLE = 0.02  # share of real values. Measured: at most 0.006 in good runs, 0.032 of letters with a sigmoid
FLAT = 0.1  # difference of mean logits. Measured: 0.2 to 3 in good runs, 0.02 to 0.06 with a heavy penalty
MOSTLY_RIGHT = 0.9  # mean accuracy. Measured: at most 0.9 in good runs, 0.9 to 0.98 with a slow G


def lasting(
    names: Sequence[str], holds: Condition, count: int, value: Callable[..., float] = max, needs_bad: bool = False
) -> Sign:
    """Return a sign that holds for the last `count` observations of all `names` since training began.

    value: what to report of the last ones. needs_bad: the score must be bad, too.
    """

    def sign(history: History) -> float | None:
        rows = _rows(_trained(history), *names)[-count:]
        is_lasting = len(rows) == count and all(holds(*row) for row in rows)
        if not is_lasting or (needs_bad and _has_improved(history)):
            return None
        return value(rows[-1])

    return sign


def overfits(ratio: float, train: float, held_out: float) -> bool:
    """Return whether D knows its training images from others. ratio: r_v."""
    return ratio > OVERFITTING and train - held_out > OVERFITTING_GAP


def is_certain_and_wrong(real: float, fake: float, saturation: float) -> bool:
    """Return whether D is confident on many images, and wrong on most. real, fake: its accuracies."""
    return (real + fake) / 2 < 0.5 and saturation > CERTAIN


def mean_accuracy(values: Sequence[float]) -> float:
    """Return D's accuracy on training images and fakes, the first two values."""
    return (values[0] + values[1]) / 2


def out_of_balance(history: History) -> float | None:
    """Return the ratio of gradient norms if it is extreme in one direction."""
    ratios = _all(history, "gradient_norm_ratio")[-3:]
    return ratios[-1] if len(ratios) == 3 and (min(ratios) > RATIO or max(ratios) < 1 / RATIO) else None


def same_samples(history: History) -> float | None:
    """Return a diversity that has fallen."""
    values = _all(history, "diversity")
    has_fallen = len(values) > 2 and max(values[-2:]) <= diversity_limit(max(values), _highest_risen(values))
    return values[-1] if has_fallen else None


def diversity_limit(highest: float, risen: float) -> float:
    """Return the diversity up to which samples have collapsed.

    highest: diversity so far. risen: the highest that came after a lower one; before, G only leaves its noise.
    """
    return max(LOWEST_DIVERSITY * min(1, highest), LOW_DIVERSITY * min(1, risen))


def _highest_risen(values: Sequence[float]) -> float:
    lowest = accumulate(values, min)
    return max((value for value, low in zip(values, lowest, strict=True) if value > low), default=0.0)


def out_of_reach(history: History) -> float | None:
    """Return the share of real values that G reached at none of the last three measurements."""
    shares = _all(_trained(history), "g/out_of_reach")[-3:]
    return shares[-1] if len(shares) == 3 and min(shares) > UNREACHABLE else None


def coverage_lost(history: History) -> float | None:
    """Return a coverage that has fallen."""
    values = _all(history, COVERAGE)
    has_fallen = len(values) > 2 and max(values[-2:]) <= COVERAGE_LOST * max(values)
    return values[-1] if has_fallen and max(values) >= SOME_COVERAGE else None


def diverges(history: History) -> float | None:
    """Return a distance that is far from its best."""
    values = _distances(history)
    return values[-1] if len(values) > 2 and min(values[-2:]) >= WORSE * min(values) else None


def weights_jump(history: History) -> float | None:
    """Return the largest jump of weights; training itself lets them grow slowly, most of all in its first kimg."""
    trained = _trained(history)
    large = _growth(trained, 3, lambda values: max(values[:-1]), EXPLODED)
    return large or _growth(trained, NUM_EARLY, lambda values: max(values[:-2]), GROWN)


def weights_grow(history: History) -> float | None:
    """Return the growth of weights over the untrained ones in the first measurements."""
    measured = [moment for moment in history if any(name.endswith(_TOP_SINGULAR_VALUE) for name in moment)]
    return _growth(measured, 2, lambda values: values[0], GROWN) if len(measured) <= NUM_EARLY else None


def _growth(history: History, count: int, before: Callable[[list[float]], float], limit: float) -> float | None:
    """Return the largest growth of a player's top singular value, if it is above the limit."""
    columns = [_all(history, f"{side}{_TOP_SINGULAR_VALUE}") for side in "gd"]
    factors = [values[-1] / before(values) for values in columns if len(values) >= count and before(values) > 0]
    largest = max(factors, default=0.0)
    return largest if largest > limit else None


def large_terms(history: History) -> float | None:
    """Return the largest term of D's loss if one is large at the last two log points."""
    terms = [_terms(moment) for moment in history if "d/gradient_norm" in moment][-2:]
    are_large = [any(abs(term) > limit for term, limit in pairs) for pairs in terms]
    return max(abs(term) for term, _ in terms[-1]) if are_large == [True, True] else None


def _terms(moment: Moment) -> list[tuple[float, float]]:
    """Return the terms of D's loss, infinite if they are not finite, each with the limit of a large one."""
    terms = {name: _number(value) for name, value in moment.items() if name.startswith("d/loss/")}
    limits = {"d/loss/adversarial": LARGE_LOSS}
    return [(term if isfinite(term) else inf, limits.get(name, LARGE)) for name, term in terms.items()]


def _trained(history: History) -> History:
    """Return what was measured of trained networks."""
    return [moment for moment in history if _number(moment.get("kimg", 1)) > 0]


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
