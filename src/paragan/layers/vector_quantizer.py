"""Vector quantizer with straight-through gradients (van den Oord et al. 2017, VQ-VAE)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.precision import at_least_float32, autocast_off


class VectorQuantizer(nn.Module):
    """Replaces each vector of a map by the nearest of `num_codes` codes of length `depth`.

    is_normalised: vectors and codes have length 1, so that the nearest is that of the largest
    cosine (ViT-VQGAN, Yu et al. 2022, section 3.2): more codes are used.
    """

    def __init__(self, num_codes: int, depth: int, is_normalised: bool = True) -> None:
        super().__init__()
        self.is_normalised = is_normalised
        self.codes = nn.Embedding(num_codes, depth)

    def forward(self, h_BDHW: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the codes (B, D, H, W), whose gradient is that of h, and tensors for losses.

        `codebook` (B, H, W, D): |code - sg(h)|^2, trains the codes. `commitment`: |h - sg(code)|^2,
        trains h. `tokens` (B, H, W): the number of each code. In at least float32.
        """
        with autocast_off(h_BDHW):
            codes_KD = self._codes()
            h = self._unit(at_least_float32(h_BDHW).movedim(1, -1))
            with torch.no_grad():
                tokens = (codes_KD.square().sum(1) - 2 * h @ codes_KD.T).argmin(-1)
            chosen = F.embedding(tokens, codes_KD)
            losses = {"codebook": (chosen - h.detach()).square(), "commitment": (h - chosen.detach()).square()}
            through = h + (chosen - h).detach()
            return through.movedim(-1, 1), {**losses, "tokens": tokens}

    def vectors(self, tokens: Tensor) -> Tensor:
        """Return the codes (B, D, H, W) of tokens (B, H, W)."""
        return F.embedding(tokens, self._codes()).movedim(-1, 1)

    def _codes(self) -> Tensor:
        return self._unit(at_least_float32(self.codes.weight))

    def _unit(self, h: Tensor) -> Tensor:
        return F.normalize(h, dim=-1) if self.is_normalised else h
