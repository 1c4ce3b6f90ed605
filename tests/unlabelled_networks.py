"""Foreign networks on labelled data: some take no labels, some ignore them, some use them."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from paragan.core.outputs import DiscriminatorOutput


class Generator(nn.Module):
    """`forward(z)`; its game has no classes."""

    latent, num_classes = 4, 0

    def __init__(self, options, shape, num_classes) -> None:
        super().__init__()
        self.shape, self.net = shape, nn.Linear(4, shape[0] * shape[1] * shape[2])

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z).tanh().unflatten(1, self.shape)


class Discriminator(nn.Module):
    """`forward(x)`, with features."""

    def __init__(self, options, shape, num_classes) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(shape[0] * shape[1] * shape[2], 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> DiscriminatorOutput:
        features = self.first(x.flatten(1)).relu()
        return DiscriminatorOutput(self.last(features).squeeze(1), features)


class IgnoringGenerator(Generator):
    """It accepts labels and does nothing with them."""

    def __init__(self, options, shape, num_classes) -> None:
        super().__init__(options, shape, num_classes)
        self.num_classes = num_classes

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return super().forward(z)


class ConditionalGenerator(IgnoringGenerator):
    """A table of its labels that starts at zero, as many do."""

    def __init__(self, options, shape, num_classes) -> None:
        super().__init__(options, shape, num_classes)
        self.table = nn.Embedding.from_pretrained(torch.zeros(num_classes, 4), freeze=False)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return super().forward(z if y is None else z + self.table(y))


class ConditionalDiscriminator(Discriminator):
    def forward(self, x: Tensor, y: Tensor | None = None) -> DiscriminatorOutput:
        return super().forward(x)


UNLABELLED = SimpleNamespace(Generator=Generator, Discriminator=Discriminator)
IGNORING = SimpleNamespace(Generator=IgnoringGenerator, Discriminator=ConditionalDiscriminator)
CONDITIONAL = SimpleNamespace(Generator=ConditionalGenerator, Discriminator=ConditionalDiscriminator)
