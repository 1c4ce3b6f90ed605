"""Search for the fastest layout: candidates are tried in whole steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from paragan.config import RunConfig
from paragan.core.errors import ConfigError, is_out_of_memory
from paragan.hardware.executors import error_line, synchronized_time
from paragan.runs.trial_steps import TrialRun
from paragan.scaling.layout_advisor import step_gain

_STEPS_S = 180.0  # for whole steps
_FORECAST = 0.01  # least gain that is worth the trial of whole steps

Say = Callable[[str], None]
Change = Callable[[RunConfig], RunConfig]


@dataclass(frozen=True)
class LayoutCandidate:
    """A change of the config that may make steps faster. forecast: of its gain; None: unknown."""

    text: str
    change: Change
    forecast: float | None = None


class LayoutSearch:
    """The fastest config so far. Each candidate changes it, and stays if its steps are faster."""

    def __init__(self, trial: TrialRun, config: RunConfig, say: Say) -> None:
        self.config = config
        self.trials: list[str] = []
        self.gain = 0.0
        self._trial = trial
        self._say = say
        self._deadline_s = time.perf_counter() + _STEPS_S

    def try_candidate(self, candidate: LayoutCandidate) -> None:
        """Measure a candidate against the fastest config so far."""
        if candidate.forecast is not None and candidate.forecast < _FORECAST:
            return self._report(candidate, _why_not_tried(candidate.forecast))
        if time.perf_counter() > self._deadline_s:
            return self._report(candidate, "not tried, the time is over")
        changed = candidate.change(self.config)
        try:
            gain = step_gain(lambda: (self._warm_step(self.config), self._warm_step(changed)))
        except Exception as error:
            if not isinstance(error, ConfigError) and not is_out_of_memory(error):
                raise
            return self._report(candidate, f"left out ({error_line(error)})")
        if gain is None:
            return self._report(candidate, "not faster")
        self.config = changed
        self.gain = 1 - (1 - self.gain) * (1 - gain)
        return self._report(candidate, f"chosen, a step takes {gain:.1%} less")

    def _warm_step(self, config: RunConfig) -> Callable[[], float]:
        """Build a game and make its first step; return a function that makes and times a step."""
        step = self._trial.stepper(config)
        step()
        return partial(step_seconds, self._trial.device, step)

    def _report(self, candidate: LayoutCandidate, result: str) -> None:
        self.trials.append(f"{candidate.text}: {result}")
        self._say(f"layout    {self.trials[-1]}")


def _why_not_tried(forecast: float) -> str:
    if forecast < 0:
        return f"not tried, its layers take {-forecast:.1%} of a step more"
    return f"not tried, a forecast of {forecast:.1%} of a step is too little to measure"


def step_seconds(device: torch.device, step: Callable[[], object]) -> float:
    """Make one step and return its seconds."""
    began = synchronized_time(device)
    step()
    return synchronized_time(device) - began
