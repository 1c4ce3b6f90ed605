"""Data-to-data cross-entropy D2D-CE (Kang et al. 2021, "Rebooting ACGAN", equation 8).

Moves an image towards the embedding of its class up to a margin, and away from images of other
classes within a margin. For a D that returns embeddings (`models/contragan`), as in ReACGAN.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.option_types import Positive
from paragan.core.protocols import PenaltyContext
from paragan.penalties._options import SideOptions
from paragan.penalties._similarity import BatchEmbeddings, batch_embeddings
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(SideOptions):
    """Weight, margins and side of the data-to-data loss."""

    temperature: Positive = 0.5
    """Temperature of the similarities: the paper's tau."""
    near: float = 0.98
    """Similarity to its class above which an image counts as near enough: the margin m_p."""
    far: float = 0.02
    """Similarity to images of other classes below which they are far enough: the margin m_n.

    The authors' code uses 1 - m_p.
    """


class Penalty(OptionsPenalty):
    """Data-to-data loss on real images in D's turn and on fakes in G's, over all ranks' images."""

    name = "data_to_data"
    uses_discriminator = True
    needs = frozenset({Capability.COUPLED})
    options: Options

    def __call__(self, context: PenaltyContext) -> Tensor:
        options = self.options
        embeddings = batch_embeddings(context, self.side, self.name)
        return self.weight_at(context.feed.rows) * loss(embeddings, options.temperature, options.near, options.far)


def loss(batch: BatchEmbeddings, tau: float, near: float, far: float) -> Tensor:
    """Return the data-to-data loss per sample, (B,).

    -log of a / (a + sum of exp(max(e.e' - far, 0) / tau) over all e' of other classes), with a =
    exp(min(e.p - near, 0) / tau).
    """
    towards_B = ((batch.points_BE * batch.proxies_BE).sum(1) - near).clamp(max=0) / tau
    others_BT = (batch.points_BE @ batch.all_TE.T - far).clamp(min=0) / tau
    others_BT = others_BT.masked_fill(batch.y_B[:, None] == batch.all_y_T, -torch.inf)
    return torch.cat([towards_B[:, None], others_BT], 1).logsumexp(1) - towards_B
