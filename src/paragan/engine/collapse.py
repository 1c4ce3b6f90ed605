"""Signs of a collapse in the telemetry and scores of a run, each several times in a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from paragan.checkpoint.reader import read_counts
from paragan.core.event import Event
from paragan.core.metric import Direction
from paragan.engine.advice import RULES
from paragan.engine.signs import (
    D_CERTAIN_AND_WRONG,
    D_SATURATED,
    MODE_COLLAPSE,
    SATURATED,
    SCORE_DIVERGES,
    WORSE,
    diversity_limit,
    is_certain_and_wrong,
)
from paragan.evaluation.score import Score

# mean accuracy of D. Measured: at least 0.56 in good runs, 0.09 to 0.24 when one batch had broken D
_WRONG = 0.4
_NEAR = 1.1  # a score within this factor of the best one is near it
# of any player's `moment_ratio`. Measured: 0.04 to 3.5 in runs that train, 0.001 to 0.003 after a poisoned batch
_STALLED = 0.01
_D_MEASURES = ("d/accuracy_train", "d/accuracy_fake", "d/saturation")
_MOMENT_RATIO = "/moment_ratio"  # after the name of a player
# keys of `CollapseMonitor.best` for diversities: the highest, the lowest, and the highest that came after a lower one
_HIGHEST, _LOWEST, _RISEN = "diversity", "lowest diversity", "risen diversity"
DIVERGED = "diverged"  # a `DivergedError`
PAST_BEST = "past_best"
OF_ONE_BATCH = (DIVERGED, "stalled", "d_wrong")  # signs that a single batch can cause
SLOWED = {D_SATURATED: ("d",)}  # the players whose rates a rollback lowers; for other signs: all
_MEANS = {rule.name: rule.means for rule in RULES} | {
    "not_finite": "Numbers of the telemetry are not finite.",
    "stalled": "One gradient was so large that Adam's second moment holds a player still.",
    PAST_BEST: "The score has been far from its best for long: the run only gets worse.",
    "d_wrong": "D is wrong on most images: G has overtaken it, or D no longer learns.",
}


@dataclass(kw_only=True)
class CollapseMonitor:
    """Monitor of the signs of a collapse, each of which must last.

    The thresholds are those of the advice (`engine/signs.py`). patience: bad measurements in a row that make a
    collapse. bad: how many there are now, by the name of the sign; a good one sets it to 0. best: best score by
    metric and number of images; and diversities under `_HIGHEST`, `_LOWEST` and `_RISEN`. best_at, near_at, scored_at:
    images trained on at the best score, at the newest score near it, and at the newest score. num_far: scores since
    `near_at`. is_repeated: whether a rollback has returned the run to its best score, not exceeded since.
    """

    patience: int
    bad: dict[str, int] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    best_at: int = 0
    near_at: int = 0
    scored_at: int = 0
    num_far: int = 0
    is_repeated: bool = False

    def observe(self, event: Event) -> None:
        """Count the signs in an event of telemetry or of a score."""
        signs = self._of_score(event) if event.kind == "score" else self._of_telemetry(event)
        for name, is_bad in signs.items():
            self.bad[name] = self.bad.get(name, 0) + 1 if is_bad else 0

    @property
    def is_clean(self) -> bool:
        """Whether the newest measurement of each value is good."""
        return not any(self.bad.values())

    def collapse(self) -> tuple[str, str] | None:
        """Return the name and the meaning of a sign that lasts, or None."""
        name = next((name for name, count in self.bad.items() if count >= self.patience), None)
        if name is None and self._is_past_best:
            name = PAST_BEST
        return None if name is None else (name, _MEANS[name])

    @property
    def _is_past_best(self) -> bool:
        """Whether the score has been far from its best for long.

        That is twice as many images as it took to reach the best, and `2 * patience` scores.
        """
        if self.is_repeated:  # it once had that time, and got worse: the second attempt needs less proof
            return self.num_far >= self.patience
        is_long = self.scored_at - self.near_at >= 2 * self.best_at > 0
        return is_long and self.num_far >= 2 * self.patience

    def restart(self, is_repeated: bool) -> None:
        """Begin all counts anew, after a rollback. is_repeated: whether it was to the best score."""
        self.bad.clear()
        self.near_at = self.scored_at
        self.num_far = 0
        self.is_repeated = is_repeated

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the fields, as JSON values. Invalid ones raise KeyError, TypeError or ValueError."""
        self.bad = read_counts(values["bad"], *values["bad"])
        self.best = {name: float(value) for name, value in dict(values["best"]).items()}
        vars(self).update(read_counts(values, "best_at", "near_at", "scored_at", "num_far"))  # fields
        self.is_repeated = values["is_repeated"] is True

    def _of_telemetry(self, event: Event) -> dict[str, bool]:
        moments = [name for name in event.values if name.endswith(_MOMENT_RATIO)]
        names = (*_D_MEASURES, *moments, "diversity")
        values = {name: float(event.values[name]) for name in names if name in event.values}
        signs = {"not_finite": not all(map(isfinite, values.values()))}
        signs["stalled"] = any(values.get(name, 1.0) < _STALLED for name in moments)
        if values.keys() >= set(_D_MEASURES):
            on_train, on_fake, saturation = (values[name] for name in _D_MEASURES)
            signs[D_SATURATED] = saturation > SATURATED
            signs[D_CERTAIN_AND_WRONG] = is_certain_and_wrong(on_train, on_fake, saturation)
            signs["d_wrong"] = (on_train + on_fake) / 2 < _WRONG
        if "diversity" in values:
            signs[MODE_COLLAPSE] = self._has_collapsed(values["diversity"], is_trained=event.step > 0)
        return signs

    def _has_collapsed(self, diversity: float, is_trained: bool) -> bool:
        """Return whether samples are too equal, and note what they have reached; noise of an untrained G is diverse."""
        highest = self.best.get(_HIGHEST, 0.0)
        lowest = self.best.get(_LOWEST, inf)
        risen = self.best.get(_RISEN, 0.0)
        if is_trained and isfinite(diversity):
            self.best[_HIGHEST] = max(highest, diversity)
            self.best[_LOWEST] = min(lowest, diversity)
            self.best[_RISEN] = max(risen, diversity) if diversity > lowest else risen
        return diversity <= diversity_limit(highest, risen)

    def _of_score(self, event: Event) -> dict[str, bool]:
        score = Score.from_values(event.values)
        metric = score.decisive
        if metric is None:
            return {}
        value = score.metrics[metric]
        key = f"{metric} of {score.num_images}"  # a distance over other numbers of images has another bias
        is_lower_better = score.direction(metric) is Direction.LOWER
        best = self.best.get(key, value)  # before this score
        if isfinite(value) and (key not in self.best or (value < best if is_lower_better else value > best)):
            self.best[key] = value
            self.best_at = event.images
            self.is_repeated = False
        self.scored_at = event.images
        self.num_far += 1
        if not _is_worse(value, best, _NEAR, is_lower_better):
            self.near_at = event.images
            self.num_far = 0
        return {SCORE_DIVERGES: _is_worse(value, best, WORSE, is_lower_better)}


def _is_worse(value: float, best: float, factor: float, is_lower_better: bool) -> bool:
    """Return whether a score is worse than the best one by a factor, or is not finite."""
    is_far = value / factor >= best if is_lower_better else value * factor <= best
    return (is_far and best > 0) or not isfinite(value)  # a factor of 0, or of a negative best, means nothing
