"""Vector quantizers with straight-through gradients (van den Oord et al. 2017, VQ-VAE): one codebook, and several."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.outputs import sum_of
from paragan.layers.precision import at_least_float32, autocast_off


class VectorQuantizer(nn.Module):
    """Replaces each vector of a map by the nearest of `num_codes` codes of `depth` numbers.

    Vectors and codes have unit norm, so that the nearest is that of the largest cosine (ViT-VQGAN, Yu et al. 2022,
    section 3.2): more codes are used.
    """

    def __init__(self, num_codes: int, depth: int) -> None:
        super().__init__()
        self.codes = nn.Embedding(num_codes, depth)

    def forward(self, h_BD: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the codes (B, D, ...) of a map of any axes, whose gradient is that of h, and tensors for losses.

        `codebook` (B, ..., D): |code - sg(h)|^2, trains the codes. `commitment`: |h - sg(code)|^2,
        trains h. `tokens` (B, ...): the number of each code. In at least float32.
        """
        with autocast_off(h_BD):
            codes_KD = self._codes()
            h = F.normalize(at_least_float32(h_BD).movedim(1, -1), dim=-1)
            with torch.no_grad():  # the squared distance, without |h|^2, which is the same for all codes
                tokens = (codes_KD.square().sum(1) - 2 * h @ codes_KD.T).argmin(-1)
            chosen = F.embedding(tokens, codes_KD)
            losses = {"codebook": (chosen - h.detach()).square(), "commitment": (h - chosen.detach()).square()}
            through = h + (chosen - h).detach()
            return through.movedim(-1, 1), {**losses, "tokens": tokens}

    def vectors(self, tokens: Tensor) -> Tensor:
        """Return the codes (B, D, ...) of tokens (B, ...)."""
        return F.embedding(tokens, self._codes()).movedim(-1, 1)

    def _codes(self) -> Tensor:
        return F.normalize(at_least_float32(self.codes.weight), dim=-1)


class ResidualQuantizer(nn.Module):
    """Several codebooks, each for what those before it left over (Zeghidour et al. 2021, SoundStream, section III-C).

    Vectors of `width` numbers are projected to codes of `depth` numbers and back, as in DAC (Kumar et
    al. 2023, section 3.2); vectors and codes have unit norm.
    """

    def __init__(self, codebooks: int, num_codes: int, width: int, depth: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList([Level(num_codes, width, depth) for _ in range(codebooks)])

    def forward(self, h_BCT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the levels (B, C, T), and tensors for losses.

        `codebook` and `commitment` (B, levels, T, depth), `tokens` (B, levels, T): as of `VectorQuantizer`.
        """
        total = torch.zeros_like(h_BCT)
        extras = []
        for level in self.levels:
            part, extra = level(h_BCT - total)
            total = total + part
            extras.append(extra)
        return total, {name: torch.stack([extra[name] for extra in extras], 1) for name in extras[0]}

    def vectors(self, tokens_BLT: Tensor) -> Tensor:
        """Return the sum (B, C, T) of the levels of tokens; the first L levels are enough. `ValueError` for more."""
        if tokens_BLT.dim() != 3 or tokens_BLT.shape[1] > len(self.levels):
            raise ValueError(f"tokens of {tuple(tokens_BLT.shape[1:])}, but there are {len(self.levels)} codebooks")
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
        h_BCT: Tensor = self.from_codes(self.quantizer.vectors(tokens_BT))
        return h_BCT
