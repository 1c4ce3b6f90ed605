"""Hadamard product of two low-rank matrices, W + (alpha / r) (B1 A1) * (B2 A2) (Hyeon-Woo et al. 2022, equation 2).

Of rank up to r^2 with twice the parameters of `lora`. B are the parameters `up`, A `down`; B2 starts at 0.
"""

from dataclasses import dataclass

from torch import Generator, Tensor

from paragan.adapters._options import LowRankOptions
from paragan.layers import adapter
from paragan.layers.adapter import matrix_shape

_STD = {"up_1": 0.1, "down_1": 1.0, "up_2": 0.0, "down_2": 1.0}  # of initial values, as in LyCORIS


@dataclass(frozen=True, kw_only=True)
class Options(LowRankOptions):
    """Rank, scale, and the weights with an adapter."""


class Adapter(adapter.Adapter):
    """W + s (B1 A1) * (B2 A2). Parameters: `up_1`, `down_1`, `up_2`, `down_2`."""

    up_1: Tensor
    down_1: Tensor
    up_2: Tensor
    down_2: Tensor

    def __init__(self, weight: Tensor, options: Options) -> None:
        super().__init__()
        rows, columns = matrix_shape(weight)
        rank = min(options.rank, rows, columns)
        self.scale = options.scale  # alpha / options.rank, so a smaller rank here does not raise it
        for role in _STD:
            shape = (rows, rank) if role.startswith("up") else (rank, columns)
            self.add_parameter(role, weight, *shape)

    def adapt(self, weight: Tensor) -> Tensor:
        change = (self.up_1 @ self.down_1) * (self.up_2 @ self.down_2)
        return weight + self.scale * change.view_as(weight)

    def fill(self, role: str, tensor: Tensor, generator: Generator) -> None:
        tensor.normal_(0.0, _STD[role], generator=generator)
