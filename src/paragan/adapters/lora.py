"""Low-rank adaptation, W + (alpha / r) B A (Hu et al. 2022, section 4.1).

Kernels of convolutions are matrices of (outputs, inputs times taps). A starts as in a linear layer,
B at 0.
"""

from dataclasses import dataclass

from torch import Generator, Tensor

from paragan.adapters._options import LowRankOptions
from paragan.layers import adapter
from paragan.layers.adapter import matrix_shape


@dataclass(frozen=True, kw_only=True)
class Options(LowRankOptions):
    """Rank, scale, and the weights with an adapter."""


class Adapter(adapter.Adapter):
    """W + s B A. Parameters: `down`, A (rank, columns), and `up`, B (rows, rank)."""

    down: Tensor
    up: Tensor

    def __init__(self, weight: Tensor, options: Options) -> None:
        super().__init__()
        rows, columns = matrix_shape(weight)
        rank = min(options.rank, rows, columns)
        self.scale = options.scale
        self.add_parameter("down", weight, rank, columns)
        self.add_parameter("up", weight, rows, rank)

    def adapt(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down).view_as(weight)

    def fill(self, role: str, tensor: Tensor, generator: Generator) -> None:
        bound = tensor.shape[1] ** -0.5 if role == "down" else 0.0
        tensor.uniform_(-bound, bound, generator=generator)
