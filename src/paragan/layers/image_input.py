"""Images of a game as the input of a network that was trained on others."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ImageInput:
    """Conversion of images in [-1, 1], of any size and of one or `channels` channels.

    size: height and width of the result; None: unchanged. resize: antialiased filter. mean, std: per
    channel, of images in [0, 1].
    """

    channels: int
    size: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = "bicubic"

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """Return images of mean 0 and standard deviation 1, if theirs are `mean` and `std`."""
        if self.size is not None and tuple(x_BCHW.shape[2:]) != self.size:
            # antialiased filters have no kernels for half precision on the CPU
            resized = F.interpolate(x_BCHW.float(), self.size, mode=self.resize, antialias=True)
            x_BCHW = resized.clamp(-1, 1).to(x_BCHW.dtype)
        x_BCHW = x_BCHW.expand(-1, self.channels, -1, -1)
        mean = x_BCHW.new_tensor(self.mean).view(-1, 1, 1)
        std = x_BCHW.new_tensor(self.std).view(-1, 1, 1)
        return ((x_BCHW + 1) / 2 - mean) / std
