"""Mixture of generators, the result of a population (Schmiedlechner et al. 2018, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

_MEMBERS = "members."


class Mixture(nn.Module):
    """Several generators as one network.

    Its latent has one more number: the quantile that selects the generator. z_BZ (B, latent), y_B
    to x_BCHW in [-1, 1]. members: networks that differ only in their weights.
    """

    shares: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.latent = int(members[0].latent) + 1  # type: ignore[arg-type]
        self.num_classes = getattr(members[0], "num_classes", 0)
        device = next((weight.device for weight in self.members.parameters()), None)
        self.register_buffer("shares", torch.tensor(weights, device=device) / sum(weights))

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        quantile_B = torch.special.ndtr(z_BZ[:, -1].contiguous())
        member_B = torch.searchsorted(self.shares.cumsum(0), quantile_B)
        member_B = member_B.clamp(max=len(self.members) - 1)
        images: Tensor | None = None
        for number, member in enumerate(self.members):
            rows = (member_B == number).nonzero().squeeze(1)
            if not len(rows):
                continue
            generated = member(z_BZ[rows, :-1], *(() if y_B is None else (y_B[rows],)))
            if images is None:
                images = generated.new_empty((len(z_BZ), *generated.shape[1:]))
            images[rows] = generated
        assert images is not None, "a batch has rows"
        return images


def of_members(make: Callable[[], nn.Module], names: Iterable[str]) -> Mixture:
    """Build a mixture, to be filled, with as many members as these names of weights contain."""
    numbers = {name.split(".")[1] for name in names if name.startswith(_MEMBERS)}
    return Mixture([make() for _ in range(max(1, len(numbers)))], [1.0] * max(1, len(numbers)))
