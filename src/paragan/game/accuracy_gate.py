"""Gate of D's steps: while D classifies too well, its steps are skipped, on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.types import LossTerms, Rows

_DECAY = 0.9  # of the moving mean; early means are plain means so far


class AccuracyGate:
    """Moving mean of D's accuracy, over all ranks, and a bound above which D's steps are skipped.

    Accuracy is the share of real samples with a logit above 0 and of fakes with one below; of
    several discriminators the mean logit counts. For losses whose boundary is 0. state: saved with
    the player; skipped counts turns that only the bound has skipped.
    """

    def __init__(self, bound: float, device: torch.device) -> None:
        self.bound = bound
        names = ("accuracy/mean", "accuracy/turns", "accuracy/skipped")
        self.state = {name: torch.zeros((), dtype=torch.float64, device=device) for name in names}

    @torch.no_grad()
    def allows(self, terms: LossTerms, rows: Rows, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Count a turn; returns whether its step is taken, 0-dim bool. Collective.

        total: sums over ranks, in place. Raises `ConfigError` without the observations of D's turn.
        """
        seen = terms.observations_B
        if not {"real", "fake"} <= seen.keys():
            raise ConfigError(
                "d.max_accuracy needs the observations 'real' and 'fake' of the objective, a logit per sample; "
                "return them in LossTerms, or leave max_accuracy out"
            )
        right = (seen["real"] > 0).sum() + (seen["fake"] < 0).sum()
        is_finite = seen["real"].isfinite().all() & seen["fake"].isfinite().all()
        counts = total(torch.stack([right, rows.count * is_finite]).double())
        accuracy = counts[0] / (2 * rows.total)
        counted = counts[1] == rows.total  # logits that are not finite say nothing
        mean, turns, skipped = self.state.values()
        turns += counted
        share = (1 / turns.clamp(min=1)).clamp(min=1 - _DECAY)
        mean.copy_(torch.where(counted, mean.lerp(accuracy, share), mean))
        allowed = mean <= self.bound
        skipped += counted & ~allowed
        return allowed

    def values(self) -> Mapping[str, Tensor]:
        """Return the mean and the share of skipped turns so far, equal on all ranks."""
        mean, turns, skipped = self.state.values()
        return {"accuracy": mean.clone(), "skipped": skipped / turns.clamp(min=1)}
