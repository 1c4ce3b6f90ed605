"""Train the extractors that the package ships, and write their weights with their accuracies.

    python -m benchmarks.train_extractors mnist DATA
    python -m benchmarks.train_extractors cifar10 DATA

DATA is the folder of MNIST's four idx files; or a folder with both `cifar10-jpeg.tar.xz`, all images but LOSSY, and
`cifar10-lossless-first4000.npz`. CIFAR-10 trains on the 50,000 JPEG training images and 3,600 of the lossless ones,
without the JPEG copies of the 400 lossless images that the data set `cifar10` holds out: those, and the JPEG test
images, are never trained on. One core; about 5 minutes for MNIST and 15 for CIFAR-10.

Writes src/paragan/features/_weights/NAME.safetensors (matrices in float16) and NAME.json there. The accuracies are of
the stored weights.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from paragan.core.source import Source
from paragan.datasets import cifar10, mnist
from paragan.datasets.base.in_memory import stratified_split
from paragan.features import cifar10 as cifar10_features, mnist as mnist_features
from paragan.features._packaged import FOLDER
from paragan.features.base.weight_files import build_with_weights
from paragan.loading.normalise import normalise

BATCH, MOMENTUM, DECAY, SMOOTHING = 256, 0.9, 5e-4, 0.05


@dataclass(frozen=True)
class Recipe:
    """shift: pixels that an image moves by at most. peak: of the learning rate, which rises and falls once."""

    trained_on: str
    epochs: int
    peak: float
    shift: int
    flip: bool


EXTRACTORS = {"mnist": mnist_features.EXTRACTOR, "cifar10": cifar10_features.EXTRACTOR}
RECIPES = {
    "mnist": Recipe("60,000 training images", epochs=10, peak=0.1, shift=2, flip=False),
    "cifar10": Recipe(
        "49,600 lossy (JPEG) and 3,600 lossless training images", epochs=16, peak=0.2, shift=3, flip=True
    ),
}


@dataclass(frozen=True)
class Images:
    x_NCHW: Tensor  # uint8
    y_N: Tensor

    @classmethod
    def of(cls, source: Source, rows: Tensor | None = None) -> Images:
        x_NCHW, y_N = source.fetch(np.arange(len(source)) if rows is None else rows.numpy()).values()
        return cls(x_NCHW, y_N)


def mnist_images(data: str) -> tuple[Images, dict[str, Images]]:
    """Training images, and those to measure on by what they are."""
    train, test = (mnist.source(mnist.Options(data), split) for split in ("train", "held_out"))
    return Images.of(train), {"the 10,000 test images": Images.of(test)}


def cifar10_images(data: str) -> tuple[Images, dict[str, Images]]:
    """The same; no image is trained on whose other version is measured on."""
    jpeg = [cifar10.source(cifar10.Options(data, "jpeg"), split) for split in ("train", "held_out")]
    lossless = [cifar10.source(cifar10.Options(data, "lossless"), split) for split in ("train", "held_out")]
    labels_N = Images.of(jpeg[0]).y_N
    held_out = stratified_split(labels_N[: len(lossless[0]) + len(lossless[1])], 10, "cifar10")[
        "held_out"
    ]  # rows of both
    assert labels_N[held_out].equal(Images.of(lossless[1]).y_N)
    trained = torch.ones(len(labels_N), dtype=torch.bool)
    trained[held_out] = False
    pieces = Images.of(jpeg[0], trained.nonzero().flatten()), Images.of(lossless[0])
    train = Images(torch.cat([p.x_NCHW for p in pieces]), torch.cat([p.y_N for p in pieces]))
    tests = {"the 10,000 JPEG test images": jpeg[1], "400 held-out lossless training images": lossless[1]}
    return train, {what: Images.of(source) for what, source in tests.items()}


def batches(images: Images, recipe: Recipe, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch: every image once, shifted and mirrored at random."""
    pad, (height, width) = recipe.shift, images.x_NCHW.shape[2:]
    for rows in torch.randperm(len(images.y_N), generator=generator).split(BATCH):
        x = F.pad(normalise(images.x_NCHW[rows]), (pad,) * 4, mode="replicate")
        down, right = torch.randint(0, 2 * pad + 1, (2, len(rows), 1), generator=generator)
        by_row = (down + torch.arange(height))[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
        x = x.gather(2, by_row)
        by_column = (right + torch.arange(width))[:, None, None, :].expand(-1, x.shape[1], height, -1)
        x = x.gather(3, by_column)
        mirrored = torch.rand(len(rows), generator=generator) < 0.5
        if recipe.flip:
            x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
        yield x.contiguous(memory_format=torch.channels_last), images.y_N[rows]


def trained(net: nn.Module, images: Images, recipe: Recipe) -> nn.Module:
    """In bfloat16 by SGD with momentum."""
    generator = torch.Generator().manual_seed(0)
    net.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, recipe.peak, MOMENTUM, nesterov=True)
    steps = recipe.epochs * -(-len(images.y_N) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.peak, steps, pct_start=0.2, anneal_strategy="linear", cycle_momentum=False
    )
    for epoch in range(recipe.epochs):
        began, right = time.monotonic(), 0
        for x_BCHW, y_B in batches(images, recipe, generator):
            with torch.autocast("cpu", torch.bfloat16):
                logits_BK = net(x_BCHW)[1].float()
            optimizer.zero_grad()
            F.cross_entropy(logits_BK, y_B, label_smoothing=SMOOTHING).backward()
            optimizer.step()
            rate.step()
            right += int((logits_BK.detach().argmax(1) == y_B).sum())
        share, seconds = right / len(images.y_N), time.monotonic() - began
        print(f"epoch {epoch + 1} of {recipe.epochs}: {share:.4f} of the training images, {seconds:.0f} s", flush=True)
    return net.eval()


@torch.no_grad()
def accuracy(net: nn.Module, images: Images) -> float:
    stratified_split = zip(images.x_NCHW.split(500), images.y_N.split(500), strict=True)
    right = sum(int((net(normalise(x_BCHW))[1].argmax(1) == y_B).sum()) for x_BCHW, y_B in stratified_split)
    return right / len(images.y_N)


def stored(net: nn.Module) -> bytes:
    """Matrices in half precision; what batch norm holds in full."""
    tensors = {name: t.half() if t.ndim > 1 else t for name, t in net.state_dict().items()}
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def main(name: str, data: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, tests = {"mnist": mnist_images, "cifar10": cifar10_images}[name](data)
    make = EXTRACTORS[name].make
    net = trained(make(), train, RECIPES[name])
    weights = stored(net)
    EXTRACTORS[name].weights.write_bytes(weights)
    net, sha256 = build_with_weights(make, EXTRACTORS[name].weights)
    info = {
        "sha256": sha256,
        "trained_on": RECIPES[name].trained_on,
        "trained_by": f"python -m benchmarks.train_extractors {name} DATA",
        "accuracy": {what: accuracy(net, images) for what, images in tests.items()},
    }
    text = json.dumps(info, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(text, f"{len(weights):,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
