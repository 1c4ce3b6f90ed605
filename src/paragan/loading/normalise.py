"""Images as networks take them, from images as data sets store them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from paragan.core.source import Source


def normalise(x_BCHW: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Map uint8 values 0…255, or uint16 values 0…65535, to [-1, 1]."""
    if x_BCHW.dtype == torch.uint16:
        return (x_BCHW.to(torch.float32) / 32767.5 - 1).to(dtype)  # narrower types do not hold the values
    return x_BCHW.to(dtype) / 127.5 - 1


def normalise_images(
    tensors: Mapping[str, Tensor], source: Source, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Normalise the tensors that the source declares as images; return the others unchanged."""
    return {
        name: normalise(tensor, dtype) if source.tensors[name].is_image else tensor for name, tensor in tensors.items()
    }
