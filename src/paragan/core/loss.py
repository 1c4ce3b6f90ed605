"""Declaration of an adversarial loss; every file of `losses/` has one as `loss`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paragan.core.capabilities import Capability


@dataclass(frozen=True)
class Loss:
    """An adversarial loss: a pair of pure functions, elementwise per sample (`losses/`).

    g_needs_real: g also receives the logits of real samples. compares: the functions compare
    samples; then they also receive the logits of the whole batch, in the same order.
    """

    d: Callable[..., Tensor]  # (real, fake)
    g: Callable[..., Tensor]  # (fake, real)
    g_needs_real: bool = False
    compares: bool = False

    @property
    def needs(self) -> frozenset[Capability]:
        """Abilities that the strategies of both players must have."""
        return frozenset({Capability.COUPLED}) if self.compares else frozenset()
