"""Feature matching by layer (Larsen et al. 2016; MelGAN, Kumar et al. 2019, equation 3).

Mean |D_l(x) - D_l(G)| of each layer l of each discriminator, for one real sample x and its fake, as codecs, vocoders
and translation networks use it. Sum over both in HiFi-GAN (Kong et al. 2020, equation 4) and DAC (Kumar et al. 2023),
weight 2. The code of Vocos (Siuzdak 2023) divides by the number of discriminators in a list: `discriminators: mean`,
weight 1, weights {mrd: 0.1}. EnCodec (Defossez et al. 2022, equation 2): relative, `discriminators: mean`, `layers:
mean`. pix2pixHD (Wang et al. 2018, equation 4) and the code of MelGAN divide by the number of discriminators, and
multiply a layer by 4 / (n + 1), for n strided layers: `discriminators: mean`, weight 40 / (n + 1).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.option_types import Combine, NotNegative
from paragan.core.outputs import DiscriminatorOutput, discriminator_weights, mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.feature_layers import feature_layers
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weight and reduction of feature matching by layer."""

    weight: Weight = 2.0
    """Weight of the term in the loss; 2 in HiFi-GAN and DAC."""
    discriminators: Combine = "sum"
    """How several discriminators are added: their sum, or the mean of each list."""
    layers: Combine = "sum"
    """How the layers of a discriminator are added."""
    relative: bool = False
    """Whether a layer's distance is divided by the mean magnitude of D_l(x) over the batch; needs micro_batches: 1."""
    weights: dict[str, NotNegative] = field(default_factory=dict)
    """Weight of each discriminator, or list of them, by name: {mrd: 0.1}; 1 for others."""


class Penalty(OptionsPenalty):
    """Mean absolute difference of D's features per sample, layer by layer.

    Each layer counts as its mean, whatever its size. No gradient reaches features of real samples.
    """

    name = "feature_matching_l1"
    side = Side.G
    needs_real = True
    uses_discriminator = True
    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.relative:
            self.needs = frozenset({Capability.COUPLED})

    def __call__(self, context: PenaltyContext) -> Tensor:
        real = context.outputs.real
        assert real is not None
        fakes = context.outputs.fake.by_name
        key = f"penalty {self.name}: weights"
        factors = discriminator_weights(fakes, self.options.discriminators, self.options.weights, key)
        distances = []
        for name, fake in fakes.items():
            by_layer_LB = self._distances(context, fake, real.by_name[name], name)
            reduced = by_layer_LB.mean(0) if self.options.layers == "mean" else by_layer_LB.sum(0)
            distances.append(factors[name] * reduced)
        return self.weight_at(context.feed.rows) * sum_of(distances)

    def _distances(
        self, context: PenaltyContext, fake: DiscriminatorOutput, real: DiscriminatorOutput, name: str
    ) -> Tensor:
        """Return the distances of one discriminator's features per layer and sample, (L, B)."""
        fakes = feature_layers(fake, self.name, name)
        reals = [layer.detach() for layer in feature_layers(real, self.name, name)]
        pairs = zip(fakes, reals, strict=True)
        by_layer_LB = torch.stack([mean_per_sample((f - r).abs()) for f, r in pairs])
        if not self.options.relative:
            return by_layer_LB
        # Over the whole batch: a rank's own mean would make the term depend on how rows lie on ranks.
        sizes_BL = torch.stack([mean_per_sample(r.abs()) for r in reals], 1)
        return by_layer_LB / context.whole(sizes_BL).mean(0)[:, None]
