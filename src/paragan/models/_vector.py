"""Generators whose norms read a vector: a class embedding shared by all layers, and a part of z.

Source: Brock et al. 2019, "Large scale GAN training for high fidelity natural image synthesis",
section 3, appendix B. Blocks pass the map and that vector, so a pipeline can cut anywhere.
"""

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.batch_norm import BatchNorm
from paragan.layers.blocks import Norm, Stem, Wrap
from paragan.layers.conditional_norm import check_labels

State = tuple[Tensor, Tensor]  # map and vector


class VectorBatchNorm(nn.Module):
    """Batch norm with gain 1 + A c and bias B c, for c (B, inputs)."""

    def __init__(self, channels: int, inputs: int, wrap: Wrap) -> None:
        super().__init__()
        self.norm = BatchNorm(channels)
        self.gain = wrap(nn.Linear(inputs, channels, bias=False))
        self.bias = wrap(nn.Linear(inputs, channels, bias=False))

    def forward(self, x: Tensor, c_BC: Tensor) -> Tensor:
        h = self.norm(x)
        affine = (1 + self.gain(c_BC), self.bias(c_BC))
        gain, bias = (value.to(h.dtype)[:, :, None, None] for value in affine)
        return torch.addcmul(bias, h, gain)


class LatentEntry(nn.Module):
    """First block: z and y to the smallest map, of `size`, and the vector (class embedding, z).

    stem_inputs: how many numbers the map is computed from: the first ones of z, or, with from_vector, all of the
    vector. shared: length of the class embedding.
    """

    def __init__(
        self,
        stem_inputs: int,
        channels: int,
        classes: int,
        shared: int,
        wrap: Wrap,
        *,
        size: tuple[int, int] = (4, 4),
        from_vector: bool = False,
    ) -> None:
        super().__init__()
        self.stem_inputs = stem_inputs
        self.from_vector = from_vector
        self.embed = nn.Embedding(classes, shared) if classes else None
        self.stem = Stem(stem_inputs, channels, wrap, size)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> State:
        c_BC = z_BZ
        if self.embed is not None:
            c_BC = torch.cat([self.embed(check_labels(y_B, len(z_BZ))).to(z_BZ.dtype), z_BZ], 1)
        return self.stem(c_BC if self.from_vector else z_BZ[:, : self.stem_inputs]), c_BC


class WithVector(nn.Module):
    """Block called with the map and these columns of the vector."""

    def __init__(self, block: nn.Module, *columns: slice) -> None:
        super().__init__()
        self.block = block
        self.columns = columns

    def forward(self, state: State, y_B: Tensor | None = None) -> State:
        h, c_BC = state
        return self.block(h, torch.cat([c_BC[:, columns] for columns in self.columns], 1)), c_BC


class WithoutVector(nn.Module):
    """Block called with the map alone. last: the vector is dropped afterwards."""

    def __init__(self, block: nn.Module, last: bool = False) -> None:
        super().__init__()
        self.block = block
        self.last = last

    def forward(self, state: State, y_B: Tensor | None = None) -> State | Tensor:
        h, c_BC = state
        return self.block(h) if self.last else (self.block(h), c_BC)


def vector_norm(inputs: int, wrap: Wrap) -> Norm:
    """Return a constructor of norms that read a vector of length `inputs`."""
    return lambda channels: VectorBatchNorm(channels, inputs, wrap)


def latent_per_block(latent: int | None, num_blocks: int, each: int) -> int:
    """Return the length of the part of z for each block of a generator and for its first map.

    latent: length of z; None: all parts have length `each`. Raises `ConfigError` if no equal parts are possible.
    """
    length = latent or each * (num_blocks + 1)
    if length % (num_blocks + 1):
        near = -(-length // (num_blocks + 1)) * (num_blocks + 1)
        raise ConfigError(
            f"model.latent={length} cannot be divided into a part for each of {num_blocks} blocks and one for the "
            f"first map; pass a multiple of {num_blocks + 1}, such as model.latent={near}"
        )
    return length // (num_blocks + 1)
