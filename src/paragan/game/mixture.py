"""Mixture of generators, the result of a population (Schmiedlechner et al. 2018, section 3.3)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """Several generators as one network.

    Its latent has one more number, the last, which selects the generator. z_BZ (B, latent), y_B
    to x_BCHW in [-1, 1]; shift_BLW: of styles, for members that have some. members: networks that
    differ only in their weights. shares: of the samples, by member.
    """

    shares: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.latent = int(members[0].latent) + 1  # type: ignore[arg-type]
        self.num_classes = getattr(members[0], "num_classes", 0)
        device = next((weight.device for weight in self.members.parameters()), None)
        self.register_buffer("shares", torch.tensor(weights, device=device) / sum(weights))

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None, shift_BLW: Tensor | None = None) -> Tensor:
        def call(member: nn.Module, rows: Tensor) -> Tensor:
            inputs = [z_BZ[rows, :-1], *(None if x is None else x[rows] for x in (y_B, shift_BLW))]
            while inputs[-1] is None:  # a member may take fewer
                inputs.pop()
            generated: Tensor = member(*inputs)
            return generated

        return self._by_member(z_BZ, call)

    def _by_member(self, z_BZ: Tensor, call: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """Return what each member returns for the rows that select it, in the order of the rows."""
        quantile_B = torch.special.ndtr(z_BZ[:, -1].contiguous())  # a latent is normal, its quantile uniform
        member_B = torch.searchsorted(self.shares.cumsum(0), quantile_B)
        member_B = member_B.clamp(max=len(self.members) - 1)  # rounded shares may add up to less than 1
        result: Tensor | None = None
        for number, member in enumerate(self.members):
            rows = (member_B == number).nonzero().squeeze(1)
            if not len(rows):
                continue
            part = call(member, rows)
            if result is None:
                result = part.new_empty((len(z_BZ), *part.shape[1:]))
            result[rows] = part
        assert result is not None, "a batch has rows"
        return result


class StyledMixture(Mixture):
    """Mixture of generators with styles, which truncates those of each member."""

    def truncation_shift(self, z_BZ: Tensor, y_B: Tensor | None, psi: float) -> Tensor:
        """Return the shifts of the members' styles, as a member returns its own."""

        def call(member: Any, rows: Tensor) -> Tensor:
            shift: Tensor = member.truncation_shift(z_BZ[rows, :-1], None if y_B is None else y_B[rows], psi)
            return shift

        return self._by_member(z_BZ, call)


def mixture_of(members: Sequence[nn.Module], weights: Sequence[float]) -> Mixture:
    """Return the mixture of these generators."""
    kind = StyledMixture if callable(getattr(members[0], "truncation_shift", None)) else Mixture
    return kind(members, weights)


def mixture_for_weights(make_member: Callable[[], nn.Module], names: Iterable[str]) -> Mixture:
    """Build a mixture with as many members as these names of weights have, to be filled with the weights."""
    numbers = {name.split(".")[1] for name in names if name.startswith("members.")}
    num_members = max(1, len(numbers))
    return mixture_of([make_member() for _ in range(num_members)], [1.0] * num_members)
