"""Residual vector quantizer (Zeghidour et al. 2021, SoundStream, section III-C)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from paragan.core.outputs import sum_of
from paragan.layers.vector_quantizer import VectorQuantizer


class ResidualQuantizer(nn.Module):
    """Several codebooks, each for what those before it left over.

    Vectors of length `width` are projected to codes of length `depth` and back, as in DAC (Kumar et
    al. 2023, section 3.2); vectors and codes have length 1.
    """

    def __init__(self, codebooks: int, num_codes: int, width: int, depth: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList([Level(num_codes, width, depth) for _ in range(codebooks)])

    def forward(self, h_BCT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the levels (B, C, T), and tensors for losses.

        `codebook` and `commitment` (B, levels, T, depth), `tokens` (B, levels, T): as of
        `VectorQuantizer`.
        """
        total = torch.zeros_like(h_BCT)
        found = []
        for level in self.levels:
            part, extra = level(h_BCT - total)
            total = total + part
            found.append(extra)
        return total, {name: torch.stack([extra[name] for extra in found], 1) for name in found[0]}

    def vectors(self, tokens_BLT: Tensor) -> Tensor:
        """Return the sum (B, C, T) of the levels of tokens; the first L levels are enough."""
        pairs = zip(self.levels, tokens_BLT.unbind(1), strict=False)
        return sum_of([cast(Level, level).vectors(tokens) for level, tokens in pairs])


class Level(nn.Module):
    """Projection, codebook, projection."""

    def __init__(self, num_codes: int, width: int, depth: int) -> None:
        super().__init__()
        self.to_codes = nn.Conv1d(width, depth, 1)
        self.quantizer = VectorQuantizer(num_codes, depth)
        self.from_codes = nn.Conv1d(depth, width, 1)

    def forward(self, h_BCT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        codes, extra = self.quantizer(self.to_codes(h_BCT))
        return self.from_codes(codes), extra

    def vectors(self, tokens_BT: Tensor) -> Tensor:
        """Return the projected codes (B, C, T) of tokens (B, T)."""
        found: Tensor = self.from_codes(self.quantizer.vectors(tokens_BT))
        return found
