"""Conditional contrastive loss 2C (Kang & Park 2020, "ContraGAN", equation 8).

Moves an image towards the embedding of its class and other images of that class, away from images
of other classes. For a D that returns embeddings (`models/contragan`): its features are image
embeddings e, then class embeddings p.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.option_types import Positive
from paragan.core.protocols import PenaltyContext
from paragan.penalties._options import SideOptions
from paragan.penalties._similarity import batch_embeddings
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(SideOptions):
    """Weight, temperature and side of the contrastive loss."""

    temperature: Positive = 1.0
    """Temperature of the similarities: the paper's t."""


class Penalty(OptionsPenalty):
    """Contrastive loss on real images in D's turn and on fakes in G's, over all ranks' images."""

    name = "contrastive"
    uses_discriminator = True
    needs = frozenset({Capability.COUPLED})
    options: Options

    def __call__(self, context: PenaltyContext) -> Tensor:
        embeddings = batch_embeddings(context, self.side, self.name)
        return self.weight_at(context.feed.rows) * loss(*embeddings, self.options.temperature)


def loss(
    points_BE: Tensor, proxies_BE: Tensor, y_B: Tensor, all_TE: Tensor, all_y_T: Tensor, positions_B: Tensor, t: float
) -> Tensor:
    """Return the contrastive loss per sample, (B,).

    It is -log of (e.p and e.e' of the same class) / (e.p and e.e' of any), each as exp(./t), e' not
    e itself. all_TE, all_y_T: whole batch. positions_B: rows of points_BE in it.
    """
    towards_B = (points_BE * proxies_BE).sum(1) / t
    others_BT = points_BE @ all_TE.T / t
    others_BT = others_BT.masked_fill(
        positions_B[:, None] == torch.arange(len(all_TE), device=positions_B.device), -torch.inf
    )
    same_BT = others_BT.masked_fill(y_B[:, None] != all_y_T, -torch.inf)
    any_B, same_B = (torch.cat([towards_B[:, None], v_BT], 1).logsumexp(1) for v_BT in (others_BT, same_BT))
    return any_B - same_B
