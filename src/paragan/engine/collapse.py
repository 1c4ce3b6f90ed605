"""Signs of a collapse in the telemetry and scores of a run, each several times in a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from paragan.core.event import Event
from paragan.core.metric import Direction
from paragan.engine.advice import CERTAIN, LOW_DIVERSITY, RULES, SATURATED, WORSE
from paragan.evaluation.score import Score

# mean accuracy of D. Measured: at least 0.56 in good runs, 0.09 to 0.24 when one batch had broken D
_WRONG = 0.4
_MEANS = {rule.name: rule.means for rule in RULES} | {
    "not_finite": "Numbers of the telemetry are not finite.",
    "d_wrong": "D is wrong on most images: G has overtaken it, or D no longer learns.",
}
_JUDGED = ("d/accuracy_train", "d/accuracy_fake", "d/saturation")
DIVERGED = "diverged"  # a `DivergedError`
DIVERGED_SCORE = "score_diverges"
OF_ONE_BATCH = (DIVERGED, "d_wrong")  # signs that a single batch can cause
SLOWED = {"d_saturated": ("d",)}  # players that cause the sign; others: both


@dataclass
class CollapseMonitor:
    """Counts of bad measurements in a row, by the name of the sign; a good one resets its count.

    The thresholds are those of the advice (`engine/advice.py`). patience: measurements in a row that
    make a collapse. best: best diversity, and best score by metric and number of images.
    """

    patience: int
    bad: dict[str, int] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        """Count the signs in an event of telemetry or of a score."""
        signs = self._of_score(event.values) if event.kind == "score" else self._of_telemetry(event)
        for name, is_bad in signs.items():
            self.bad[name] = self.bad.get(name, 0) + 1 if is_bad else 0

    @property
    def is_clean(self) -> bool:
        """Whether the newest measurement of each value is good."""
        return not any(self.bad.values())

    def collapse(self) -> tuple[str, str] | None:
        """Return the name and the meaning of a sign that lasts, or None."""
        name = next((name for name, count in self.bad.items() if count >= self.patience), None)
        return None if name is None else (name, _MEANS[name])

    def _of_telemetry(self, event: Event) -> dict[str, bool]:
        names = (*_JUDGED, "diversity")
        values = {name: float(event.values[name]) for name in names if name in event.values}
        signs = {"not_finite": not all(map(isfinite, values.values()))}
        if values.keys() >= set(_JUDGED):
            on_train, on_fake, saturation = (values[name] for name in _JUDGED)
            signs["d_saturated"] = saturation > SATURATED
            accuracy = (on_train + on_fake) / 2
            signs["d_certain_and_wrong"] = accuracy < 0.5 and saturation > CERTAIN
            signs["d_wrong"] = accuracy < _WRONG
        if "diversity" in values:
            best = self.best.get("diversity", 0.0)
            signs["mode_collapse"] = values["diversity"] <= LOW_DIVERSITY * min(1, best)
            if event.step and isfinite(values["diversity"]):  # noise of an untrained G is diverse
                self.best["diversity"] = max(best, values["diversity"])
        return signs

    def _of_score(self, values: Mapping[str, Any]) -> dict[str, bool]:
        score = Score.from_values(values)
        metric = score.decisive
        if metric is None:
            return {}
        value = score.metrics[metric]
        key = f"{metric} of {score.num_images}"
        best = self.best.get(key, value)
        is_lower_better = score.direction(metric) is Direction.LOWER
        is_worse = value >= WORSE * best if is_lower_better else value <= best / WORSE
        if isfinite(value):
            self.best[key] = min(best, value) if is_lower_better else max(best, value)
        return {DIVERGED_SCORE: (is_worse and best > 0) or not isfinite(value)}
