"""A data set outside the package: horizontal and vertical stripes."""

from dataclasses import dataclass

import torch

from paragan.core.source import Source, image_specs


@dataclass(frozen=True)
class Options:
    size: int = 8
    """Height and width in pixels."""


class Stripes(Source):
    class_names = ("horizontal", "vertical")

    def __init__(self, size, split):
        self.size = size
        self.tensors = image_specs((1, size, size), has_labels=True)
        self.fingerprint = f"stripes {size} {split}"

    def __len__(self):
        return 64

    def fetch(self, indices, places=None, seed=0):
        label = torch.as_tensor(indices) % 2
        lines = (torch.arange(self.size) % 2 * 255).to(torch.uint8).expand(self.size, self.size)
        image = torch.stack([lines if vertical else lines.T for vertical in label])[:, None]
        return {"image": image, "label": label}


def source(options, split):
    return Stripes(options.size, split)
