"""ReACGAN (Kang et al. 2021, "Rebooting ACGAN").

The networks of `contragan`; the loss of D's embeddings is `penalties/data_to_data`, once for each side, instead of
`penalties/contrastive`. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 / 2,517,186.
"""

from dataclasses import dataclass

from paragan.models import contragan
from paragan.models._options import ContrastOptions


@dataclass(frozen=True, kw_only=True)
class Options(ContrastOptions):
    """Settings of `contragan`."""


class Generator(contragan.Generator):
    """ReACGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""


class Discriminator(contragan.Discriminator):
    """ReACGAN's discriminator: x_BCHW and y_B to a `DiscriminatorOutput` with embeddings."""
