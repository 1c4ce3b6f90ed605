"""Runs of two steps of each kind of generator of images from images."""

import numpy as np
from PIL import Image

SIZES = {"wide": (40, 24), "tiny": (3, 5), "square": (64, 64)}  # width, height
RUNS = {
    "pix2pix": ("pix2pix-facades", {"model.width": 4, "evaluation.num_images": 2}, "pairs"),
    "superres": ("superres", {"model.width": 4, "model.blocks": 1, "penalties": [{"name": "l1"}]}, "photos"),
    "translate": ("translate", {"model.width": 4, "model.blocks": 1, "data.held_out": 0.5}, "two"),
    "vqgan": (
        "vqgan-cifar10",
        {
            "model.width": 8,
            "data": {"name": "folder", "flip": False},
            "balancer": None,
            "penalties": [{"name": "l1"}, {"name": "codebook"}],
        },
        "photos",
    ),
}


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))
