"""Networks that pass every law, and faults that break one: text replacements and the expected messages."""

NETS = """
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.spectral_norm import spectral_norm


@dataclass(frozen=True)
class Options:
    width: int = 6


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(a, b, 3, padding=1))

    def forward(self, x):
        return F.silu(self.conv(x))


class Generator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.latent, self.num_classes = 5, 0
        self.first = nn.Linear(5, options.width * 16)
        self.norm = NORM(options.width)
        self.last = nn.Conv2d(options.width, 1, 3, padding=1)

    def forward(self, z, y=None):
        h = self.norm(self.first(z).unflatten(1, (-1, 4, 4)))
        return torch.tanh(self.last(F.interpolate(F.silu(h), scale_factor=2)))


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.blocks = nn.ModuleList([Block(1, options.width), Block(options.width, options.width)])
        self.last = nn.Linear(options.width, 1)

    def forward(self, x, y=None):
        h = self.blocks[1](self.blocks[0](x)).mean((2, 3))
        return self.last(h).squeeze(1)
"""
STRAIGHT = "NORM(options.width)", "nn.Identity()"  # without a batch norm, so that nothing is exempt
FUNCTION = """
class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    {refusal}
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - torch.tanh(x{detached}).square())


class Block(nn.Module):"""


def faulty(*changes: tuple[str, str]) -> str:
    text = NETS
    for stands, instead in changes:
        assert stands in text
        text = text.replace(stands, instead, 1)
    return text.replace("NORM(", "AffineBatchNorm(")


TORCH_SPECTRAL = (
    "import spectral_norm\n",
    "import SpectralNorm\nfrom torch.nn.utils.parametrizations import spectral_norm\n",
)
FAULTS = {
    "torch-spectral-norm": (
        [TORCH_SPECTRAL],
        {
            "parts are the whole, D": "use paragan.layers.spectral_norm",
        },
    ),
    "torch-batch-norm-that-counts": (
        [
            ("NORM(options.width)", "Counting(options.width)"),
            (
                "class Block(nn.Module):",
                "class Counting(nn.BatchNorm2d):\n    def __init__(self, n):\n        super().__init__(n)\n"
                "        self.register_buffer('calls', torch.zeros(()))\n\n    def forward(self, x):\n"
                "        self.calls += 1\n        return super().forward(x)\n\n\nclass Block(nn.Module):",
            ),
        ],
        {"frozen means frozen, G": "calls changed in the other player's turn: Counting changes it in its forward"},
    ),
    "torch-synchronised-batch-norm": (
        [("NORM(options.width)", "nn.SyncBatchNorm(options.width)")],
        {"called in float64, G": "use nn.BatchNorm1d, 2d or 3d, whose statistics will span the ranks"},
    ),
    "numpy-in-the-constructor": (
        [
            (
                "self.last = nn.Linear(options.width, 1)",
                "self.last = nn.Linear(options.width, 1)\n"
                "        import numpy\n        nn.init.constant_(self.last.bias, numpy.random.rand())",
            )
        ],
        {"deterministic, none": "the constructor does not draw from torch's generator alone"},
    ),
    "detached-on-one-way": (
        [("self.blocks[0](x))", "self.blocks[0](x + x.detach()))")],
        {"twice differentiable, D": "is not the slope of the logits"},
    ),
    "once-differentiable": (
        [
            (
                "class Block(nn.Module):",
                FUNCTION.format(refusal="@torch.autograd.function.once_differentiable", detached=""),
            ),
            ("F.silu(self.conv(x))", "Squash.apply(self.conv(x))"),
        ],
        {"twice differentiable, D": "the network uses the autograd Function Squash"},
    ),
    "wrong-second-derivative": (
        [
            ("class Block(nn.Module):", FUNCTION.format(refusal="", detached=".detach()")),
            ("F.silu(self.conv(x))", "Squash.apply(self.conv(x))"),
        ],
        {"twice differentiable, D": "the second derivative is not the derivative of the first; the network uses"},
    ),
    "state-in-an-attribute": (
        [
            (
                "def forward(self, z, y=None):",
                "calls = 0\n\n    def forward(self, z, y=None):\n        self.calls += 1",
            ),
            ("torch.tanh(self.last(", "torch.tanh((1 + 0.1 * self.calls) * self.last("),
        ],
        {
            "frozen means frozen, G": "keeps state in an attribute",
            "stopping is invisible, none": "not in the state dict",
        },
    ),
    "state-in-a-buffer": (
        [
            ("self.latent, self.num", "self.register_buffer('seen', torch.zeros(()))\n        self.latent, self.num"),
            ("h = self.norm", "self.seen += 1\n        h = self.norm"),
        ],
        {"frozen means frozen, G": "Generator.seen changed in the other player's turn: Generator changes it"},
    ),
    "mean-over-the-batch": (
        [STRAIGHT, ("h = self.norm(self.first(z)", "z = z - z.mean(0)\n        h = self.norm(self.first(z)")],
        {  # D's fakes are made part by part, too
            "parts are the whole, G": "Generator: a row changes",
            "parts are the whole, D": "Generator: a row changes",
        },
    ),
    "raises-in-float64": (
        [("return self.last(h).squeeze(1)", "return F.linear(h, self.last.weight.float()).squeeze(1)")],
        {"called in float64, D": "raised RuntimeError: expected m1 and m2"},
    ),
}

OUTSIDE = ("self.blocks[1](self.blocks[0](x))", "self.blocks[1](F.silu(self.blocks[0].conv(x)))")
SEVERAL = {
    "mean-over-the-batch": (
        [FAULTS["mean-over-the-batch"][0][1]],
        ("ddp", "zero3"),
        "Generator: a row changes",
    ),
    "outside-its-block": ([OUTSIDE], ("zero3", "zero2"), "is used outside the forward of its block blocks.0"),
    "of-the-process": (
        [
            (
                "self.latent, self.num",
                "import os\n        self.pid = os.getpid() % 1000\n        self.latent, self.num",
            ),
            ("torch.tanh(self.last(", "torch.tanh((1 + self.pid) * self.last("),
        ],
        ("ddp", "zero3"),
        "Generator.",
    ),
    "one-rank-dies": (
        [
            (
                "def forward(self, z, y=None):",
                "def forward(self, z, y=None):\n        import os\n        if len(z) == 3:\n            os._exit(7)",
            )
        ],
        ("ddp, uneven", "zero3, uneven"),
        "rank 0: ended with exit code 7",
    ),
    "one-rank-raises": (
        [
            (
                "def forward(self, z, y=None):",
                "def forward(self, z, y=None):\n        assert len(z) != 3, 'three are a crowd'",
            )
        ],
        ("ddp, uneven", "zero3, uneven"),
        "rank 0: raised AssertionError: three are a crowd (",
    ),
}

SHARED_WEIGHTS = (
    ("class Generator", "SHARED = nn.Linear(6, 6)\n\n\nclass Generator"),
    ("self.latent, self.num", "self.shared = SHARED\n        self.latent, self.num"),
    ("self.last = nn.Linear(options.width, 1)", "self.last, self.shared = nn.Linear(options.width, 1), SHARED"),
)
DETACHED = (("self.blocks[0](x))", "self.blocks[0](x.detach()))"),)
