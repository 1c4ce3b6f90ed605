"""Hinge loss for both players: G minimises max(0, 1 - D), as D does on real samples.

As in SoundStream (Zeghidour et al. 2021), EnCodec (Défossez et al. 2022) and Vocos (Siuzdak 2023).
A fake beyond the margin gives G no gradient; `hinge` has no such margin.
"""

from torch import Tensor

from paragan.core.protocols import Loss
from paragan.losses.hinge import d_loss


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return max(0, 1 - fake), elementwise."""
    return (1 - fake_B).relu()


loss = Loss(d_loss, g_loss)
