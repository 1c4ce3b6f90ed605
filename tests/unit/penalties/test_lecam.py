"""What LeCam regularisation remembers, and what not; its formula: tests/numerics."""

import torch

from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties import lecam
from tests.one_turn import BATCH, turn

LOGITS = torch.randn(5, 2, BATCH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def called(penalty, real, fake):
    part = PenaltyContext(
        network=None,
        feed=turn(Side.D).feed,
        outputs=Outputs(fake=DiscriminatorOutput(fake), real=DiscriminatorOutput(real)),
        input_gradient=None,
    )
    return penalty(part)


def test_what_it_remembers_is_on_the_way_of_no_gradient():
    """Two updates before either backward, as extragradient plays."""
    penalty = lecam.Penalty(lecam.Options())
    leaves = [logits.clone().requires_grad_() for logits in LOGITS[:2]]
    losses = [called(penalty, *leaf).sum() for leaf in leaves]
    sum(losses).backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
