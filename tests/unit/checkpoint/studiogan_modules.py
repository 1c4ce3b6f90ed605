"""Plain networks with the names of PyTorch-StudioGAN's, and those of its checkout, by the same arguments."""

import os
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm as old_spectral_norm

G_WIDTHS = {32: (4, 4, 4, 4), 64: (16, 8, 4, 2, 1)}
D_WIDTHS = {32: (2, 2, 2, 2), 64: (1, 2, 4, 8, 16)}
D_HALVINGS = {32: 2, 64: 4}
CLASSES = 5


def spectral(layer):
    return old_spectral_norm(layer, eps=1e-6)


class LabelNorm(nn.Module):
    def __init__(self, inputs, width, wrap):
        super().__init__()
        self.bn = nn.BatchNorm2d(width, eps=1e-4, affine=False)
        self.gain, self.bias = (wrap(nn.Linear(inputs, width, bias=False)) for _ in range(2))

    def forward(self, x, c):
        return self.bn(x) * (1 + self.gain(c))[..., None, None] + self.bias(c)[..., None, None]


class Attention(nn.Module):
    def __init__(self, width, wrap):
        super().__init__()
        for name, parts in (("theta", 8), ("phi", 8), ("g", 2)):
            setattr(self, f"conv1x1_{name}", wrap(nn.Conv2d(width, width // parts, 1, bias=False)))
        self.conv1x1_attn = wrap(nn.Conv2d(width // 2, width, 1, bias=False))
        self.sigma = nn.Parameter(torch.zeros(1))

    def forward(self, x, *_):
        phi, g = (F.max_pool2d(conv(x), 2).flatten(2) for conv in (self.conv1x1_phi, self.conv1x1_g))
        weight = (self.conv1x1_theta(x).flatten(2).transpose(1, 2) @ phi).softmax(2)
        return x + self.sigma * self.conv1x1_attn((g @ weight.transpose(1, 2)).unflatten(2, x.shape[2:]))


class Block(nn.Module):
    """up: of a generator, with the inputs of its norms; 0: without classes."""

    def __init__(self, a, b, wrap, *, up=None, down=False, first=False):
        super().__init__()
        self.up, self.down, self.first, self.inputs = up is not None, down, first, up
        if up is not None:
            norm = (lambda width: LabelNorm(up, width, wrap)) if up else (lambda width: nn.BatchNorm2d(width, eps=1e-4))
            self.bn1, self.bn2 = norm(a), norm(b)
        self.conv2d1, self.conv2d2 = (wrap(nn.Conv2d(i, b, 3, padding=1)) for i in (a, b))
        if self.up or down or a != b:
            self.conv2d0 = wrap(nn.Conv2d(a, b, 1))

    def normed(self, name, x, c):
        if not self.up:
            return x
        norm = getattr(self, name)
        return norm(x, c) if self.inputs else norm(x)

    def forward(self, x, c=None):
        def resized(h):
            return F.interpolate(h, scale_factor=2) if self.up else h

        h = self.normed("bn1", x, c)
        h = self.conv2d1(resized(h if self.first else h.relu()))
        h = self.conv2d2(self.normed("bn2", h, c).relu())
        x = self.conv2d0(resized(x)) if hasattr(self, "conv2d0") else x
        return F.avg_pool2d(h + x, 2) if self.down else h + x


def in_lists(blocks, attends, wrap, widths):
    """Lists of one block each, with attention after block number `attends`."""
    lists = []
    for number, block in enumerate(blocks, start=1):
        lists.append([block])
        if number == attends:
            lists.append([Attention(widths[number], wrap)])
    return nn.ModuleList([nn.ModuleList(blocks) for blocks in lists])


class Generator(nn.Module):
    def __init__(self, *, big, image, width, latent, classes, normed, attends):
        super().__init__()
        wrap = spectral if normed else (lambda layer: layer)
        widths = [width * times for times in G_WIDTHS[image]]
        self.big, self.classes = big, classes
        first = latent // len(widths) if big else latent
        self.linear0 = wrap(nn.Linear(first, widths[0] * 16))
        inputs = classes
        if big:
            inputs = first + (6 if classes else 0)
            if classes:
                self.shared = nn.Embedding(classes, 6)
        blocks = [Block(a, b, wrap, up=inputs) for a, b in pairwise(widths)]
        self.blocks = in_lists(blocks, attends, wrap, widths)
        self.bn4 = nn.BatchNorm2d(widths[-1], eps=1e-4)
        self.conv2d5 = wrap(nn.Conv2d(widths[-1], 3, 3, padding=1))

    def forward(self, z, y):
        parts = z.split(self.linear0.in_features, 1)
        if self.big:
            vectors = [torch.cat([self.shared(y), part], 1) if self.classes else part for part in parts[1:]]
        else:
            vectors = [F.one_hot(y, self.classes).to(z.dtype) if self.classes else None] * len(self.blocks)
        h = self.linear0(parts[0]).unflatten(1, (-1, 4, 4))
        for [block] in self.blocks:
            h = block(h, vectors.pop(0) if isinstance(block, Block) else None)
        return torch.tanh(self.conv2d5(self.bn4(h).relu()))


class Discriminator(nn.Module):
    def __init__(self, *, image, width, classes, head, attends):
        super().__init__()
        widths = [3, *(width * times for times in D_WIDTHS[image])]
        downs = [
            Block(a, b, spectral, down=i < D_HALVINGS[image], first=i == 0) for i, (a, b) in enumerate(pairwise(widths))
        ]
        self.blocks = in_lists(downs, attends, spectral, widths)
        self.head, features = head, widths[-1]
        self.linear1 = spectral(nn.Linear(features, 1))
        if head in ("AC", "2C"):
            self.linear2 = spectral(nn.Linear(features, classes if head == "AC" else 7, bias=head == "2C"))
        if head in ("PD", "2C"):
            self.embedding = spectral(nn.Embedding(classes, features if head == "PD" else 7))

    def forward(self, x, y):
        for [block] in self.blocks:
            x = block(x)
        h = x.relu().sum((2, 3))
        logits = self.linear1(h).squeeze(1)
        outputs = {"adv_output": logits + (self.embedding(y) * h).sum(1) if self.head == "PD" else logits}
        if self.head == "AC":
            outputs["cls_output"] = self.linear2(h)
        if self.head == "2C":
            outputs |= {"embed": F.normalize(self.linear2(h)), "proxy": F.normalize(self.embedding(y))}
        return outputs


class Checkout:
    """The project's own modules, from the folder of its checkout in PARAGAN_STUDIOGAN."""

    def __init__(self, monkeypatch):
        folder = os.environ.get("PARAGAN_STUDIOGAN", "")
        if not (Path(folder) / "src" / "models" / "resnet.py").is_file():
            pytest.skip("PARAGAN_STUDIOGAN is not the folder of a checkout of PyTorch-StudioGAN")
        monkeypatch.syspath_prepend(str(Path(folder) / "src"))
        for name in [name for name in sys.modules if name.partition(".")[0] in ("models", "utils")]:
            monkeypatch.delitem(sys.modules, name)
        misc = ModuleType("utils.misc")  # that of the project imports packages of its plots
        misc.dummy_context_mgr = torch.no_grad
        monkeypatch.setitem(sys.modules, "utils.misc", misc)

    def _arguments(self, normed, classes, big, head="W/O"):
        from utils import ops

        g = (
            {"g_conv2d": ops.snconv2d, "g_linear": ops.snlinear}
            if normed
            else {"g_conv2d": ops.conv2d, "g_linear": ops.linear}
        )
        d = {"d_conv2d": ops.snconv2d, "d_linear": ops.snlinear, "d_embedding": ops.sn_embedding}
        norm = ops.ConditionalBatchNorm2d if classes or big else ops.batchnorm_2d
        modules = SimpleNamespace(**g, **d, g_bn=norm, g_act_fn=nn.ReLU(), d_act_fn=nn.ReLU())
        return modules, SimpleNamespace(info_type="N/A", g_info_injection="N/A")

    def generator(self, *, big, image, width, latent, classes, normed, attends):
        modules, model = self._arguments(normed, classes, big)
        return self._backbone(big).Generator(
            latent, 6, image, width, attends > 0, [attends], "cBN" if classes else "W/O", classes, "ortho",
            "N/A", False, modules, model,
        )  # fmt: skip

    def discriminator(self, *, image, width, classes, head, attends):
        modules, model = self._arguments(True, classes, False)
        return self._backbone(True).Discriminator(
            image, width, True, attends > 0, [attends], head, "W/O", 7, head == "2C", classes, "ortho", "N/A", False,
            modules, model,
        )  # fmt: skip

    def _backbone(self, big):
        import importlib

        module = importlib.import_module(f"models.{'big_resnet' if big else 'resnet'}")
        module.torch = Doubles()  # it makes float32 of labels
        return module


class Doubles:
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def settled(net, *inputs):
    """Evaluation mode, after updates of the vectors of spectral norm, which then limits its layers."""
    for _ in range(5):
        net.train()(*inputs)
    return net.eval()


class Plain:
    generator = Generator
    discriminator = Discriminator
