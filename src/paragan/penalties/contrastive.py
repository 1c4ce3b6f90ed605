"""Conditional contrastive loss 2C (Kang & Park 2020, "ContraGAN", equation 8).

Moves an image towards the embedding of its class and other images of that class, away from images of other classes.
For a D that returns embeddings (`models/contragan`): its features are image embeddings e, then class embeddings p.
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
        return self.weight_at(context.feed.rows) * loss(embeddings, self.options.temperature)


def loss(batch: BatchEmbeddings, t: float) -> Tensor:
    """Return the contrastive loss per sample, (B,).

    It is -log of (e.p and e.e' of the same class) / (e.p and e.e' of any), each as exp(./t), e' not e itself.
    """
    towards_B1 = (batch.points_BE * batch.proxies_BE).sum(1, keepdim=True) / t
    others_BT = batch.points_BE @ batch.all_TE.T / t
    numbers_T = torch.arange(len(batch.all_TE), device=batch.positions_B.device)
    others_BT = others_BT.masked_fill(batch.positions_B[:, None] == numbers_T, -torch.inf)
    same_BT = others_BT.masked_fill(batch.y_B[:, None] != batch.all_y_T, -torch.inf)
    any_B = torch.cat([towards_B1, others_BT], 1).logsumexp(1)
    return any_B - torch.cat([towards_B1, same_BT], 1).logsumexp(1)
