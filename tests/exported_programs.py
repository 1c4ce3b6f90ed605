"""Files of `torch.export` with networks of random weights."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TinyTransformer(nn.Module):
    """A vision transformer in the style of DINOv2: patches, class token, positions, layer scale."""

    def __init__(self, size: int = 28, patch: int = 7, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), tokens], 1) + self.pos_embed
        for block in self.blocks:
            h = block(h)
        h = self.norm(h)
        return {"cls": h[:, 0], "patches": h[:, 1:]}


class _Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((2, width), 0.5))

    def forward(self, h: Tensor) -> Tensor:
        count, length, width = h.shape
        qkv = self.qkv(self.norm1(h)).reshape(count, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count, length, width)
        h = h + self.scale[0] * self.proj(attended)
        return h + self.scale[1] * self.mlp(self.norm2(h))


class TinyMaps(nn.Module):
    """A convolutional network that returns the maps of two layers, for images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 10, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = F.relu(self.norm(self.first(x)), inplace=True)
        return first, self.second(F.max_pool2d(first, 2)).relu()


def exported(network: nn.Module, path: Path, size: int = 28, is_any_size: bool = False) -> nn.Module:
    """Write a network with random weights to a file; return it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.2)
        image = torch.randn(2, 3, size, size)
    network = network.eval()
    dims = {0: torch.export.Dim("batch")}
    if is_any_size:
        dims |= {axis: 2 * torch.export.Dim(f"half{axis}", min=2) for axis in (2, 3)}
    program = torch.export.export(network, (image,), dynamic_shapes=(dims,), strict=False)
    torch.export.save(program, path)
    return network
