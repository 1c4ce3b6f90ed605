"""Successive halving: all candidates train a little, and the better half for twice as long.

After K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016, algorithm 1, with halves rounded up. Candidates are factors of the
learning rates; factor 1 is replaced only by one that is clearly better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from paragan.core.errors import DivergedError
from paragan.core.metric import Direction


@dataclass(frozen=True)
class TrialScore:
    """Score by the metric that ranks checkpoints. interval: 95 %; None if it has none."""

    metric: str
    value: float
    direction: Direction = Direction.LOWER
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} ± {(self.interval[1] - self.interval[0]) / 2:.2g}"

    @property
    def cost(self) -> float:
        """The value; negated where higher is better."""
        return -self.direction * self.value

    def overlaps(self, other: TrialScore) -> bool:
        """Return whether the intervals of both have a value in common."""
        low, high = self.interval or (self.value, self.value)
        other_low, other_high = other.interval or (other.value, other.value)
        return low <= other_high and other_low <= high


@dataclass(frozen=True)
class Trial:
    """A run of `kimg` thousand images with rates times `factor`. score: None if it diverged."""

    factor: float
    kimg: float
    score: TrialScore | None

    def __str__(self) -> str:
        return f"x {self.factor:g}: {'diverged' if self.score is None else self.score}"


@dataclass(frozen=True)
class Probe:
    """Trials, those of the same length together, and the factor that they lead to."""

    trials: tuple[Trial, ...]
    factor: float

    @property
    def is_tied(self) -> bool:
        """Whether another factor has a better score, but not clearly."""
        longest = self.trials[-1].kimg
        scores = _scores(one for one in self.trials if one.kimg == longest)
        return any(one.cost < scores[self.factor].cost for one in scores.values())

    @property
    def reason(self) -> str:
        """The choice with the scores of all trials, the longest first."""
        rungs = []
        for kimg in sorted({one.kimg for one in self.trials}, reverse=True):
            scores = ", ".join(str(one) for one in self.trials if one.kimg == kimg)
            rungs.append(f"{scores} after {kimg:g} kimg")
        metric = next(iter(_scores(self.trials).values())).metric
        tie = ", whose ± overlaps with that of a better score" if self.is_tied else ""
        return f"probe: x {self.factor:g}{tie}; {metric} {'; '.join(rungs)}"


def successive_halving(
    factors: Sequence[float], kimg: float, score: Callable[[float, float], TrialScore | None]
) -> Probe:
    """Return the trials of a probe with the best factor.

    kimg: length of the first trials. score: trains with a factor up to a length, from the length
    before on; None: it diverged. Raises `DivergedError` if all trials of a length diverged.
    """
    trials: list[Trial] = []
    while True:
        rung = [Trial(factor, kimg, score(factor, kimg)) for factor in factors]
        trials += rung
        better = rank(_scores(rung))[: (len(rung) + 1) // 2]
        if not better:
            names = ", ".join(f"{factor:g}" for factor in factors)
            problem = f"the learning-rate probe diverged within {kimg:g} kimg with rates x {names}"
            raise DivergedError(f"{problem}; lower g.optimizer.lr and d.optimizer.lr")
        if len(better) == 1:
            return Probe(tuple(trials), better[0])
        factors = sorted(better)
        kimg *= 2


def rank(scores: Mapping[float, TrialScore]) -> list[float]:
    """Return factors by their scores, best first.

    Factor 1 goes before the first one whose interval overlaps with its interval.
    """
    ranked = sorted(scores, key=lambda factor: scores[factor].cost)
    if 1 in scores:
        planned = scores[1]
        place = next(n for n, factor in enumerate(ranked) if scores[factor].overlaps(planned))
        ranked.remove(1)
        ranked.insert(place, 1)
    return ranked


def _scores(trials: Iterable[Trial]) -> dict[float, TrialScore]:
    """Return the scores of trials that did not diverge, by factor."""
    return {one.factor: one.score for one in trials if one.score is not None}
