"""The networks that look at images for a score: each returns (features, logits)."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.seams import Source
from paragan.game.options import ScheduleOptions
from paragan.game.policy import Policy, set_lr, step_if
from paragan.loading.loader import Loader

NUM_FEATURES = 64
STEPS, BATCH, LEARNING_RATE, SHIFT = 500, 64, 2e-3, 1
_POLICY = Policy(torch.optim.Adam, LEARNING_RATE, schedule=ScheduleOptions("linear", end=STEPS))

_MNIST_TOLD = "weight and bias of conv1 (10, 1, 5, 5), conv2 (20, 10, 5, 5), fc1 (50, 320), fc2 (10, 50) as floats"
_MOST_BYTES = 1 << 20
# What np.load raises for text, a lone array, a cut or altered archive, an array that is too large.
_NOT_AN_NPZ = (OSError, ValueError, TypeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)


class Classifier(nn.Module):
    """Halves the image until its shorter side is 4 to 7, then 64 ReLU features, then logits.

    The features are normalised before their ReLU: without, a third of them learnt to be 0 everywhere.
    """

    def __init__(self, shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        stages: list[nn.Module] = []
        while min(height, width) >= 8:
            wider = min(2 * channels, 64) if stages else 32
            stages += [nn.Conv2d(channels, wider, 4, 2, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels, height, width = wider, height // 2, width // 2
        flat = nn.Linear(channels * height * width, NUM_FEATURES, bias=False)
        self.features = nn.Sequential(*stages, nn.Flatten(), flat, nn.BatchNorm1d(NUM_FEATURES), nn.ReLU())
        self.logits = nn.Linear(NUM_FEATURES, num_classes)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        features_BF = self.features(x_BCHW)
        return features_BF, self.logits(features_BF)


class MnistCnn(nn.Module):
    """LeNet-like: (B, 1, 28, 28) in [-1, 1] to 50 ReLU features and 10 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(F.max_pool2d(self.conv1(x_BCHW), 2))
        h = F.relu(F.max_pool2d(self.conv2(h), 2)).flatten(1)
        features_BF = F.relu(self.fc1(h))
        return features_BF, self.fc2(features_BF)


def untrained(shape: tuple[int, int, int], num_classes: int, seed: int) -> Classifier:
    """Weights from this seed; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(rng.key(seed, "judge", "init"))
        return Classifier(shape, num_classes).float()


def fitted(train: Source, seed: int) -> Classifier:
    """A classifier of the labels of `train`: a fixed number of steps on the CPU, images shifted by up to a pixel.

    The same weights for the same data, seed and machine: on one thread, since sums over several depend on their number
    (and kernels this small gain nothing by them). Draws nothing from the global random state.
    """
    with _one_thread(), torch.enable_grad():
        return _fitted(train, seed)


def _fitted(train: Source, seed: int) -> Classifier:
    net = untrained(train.shape, len(train.class_names), seed)
    optimizer = _POLICY.optimizer(net.parameters())
    batches = Loader(train, BATCH, rng.key(seed, "judge", "order"), torch.device("cpu"))
    shifts = torch.randint(-SHIFT, SHIFT + 1, (STEPS, 2), generator=rng.generator(seed, "judge", "shift"))
    for count, shift in enumerate(shifts.tolist()):
        batch = next(batches)
        assert batch.x_BCHW is not None and batch.y_B is not None
        _, logits_BK = net(_shifted(batch.x_BCHW, *shift))
        optimizer.zero_grad()
        F.cross_entropy(logits_BK, batch.y_B).backward()
        set_lr(optimizer, _POLICY, torch.tensor(count))
        step_if(torch.tensor(True), optimizer)
    return net


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def mnist_cnn_from(path: Path) -> MnistCnn:
    """The network with the weights in an npz. Raises `DataError` if the file is missing or holds anything else."""
    with torch.device("meta"):  # no initial weights: none are drawn from the global random state
        net = MnistCnn()
    wanted = {name: (tuple(tensor.shape), "f") for name, tensor in net.state_dict().items()}
    arrays = _arrays(path, wanted)
    net.load_state_dict({name: torch.from_numpy(array).float() for name, array in arrays.items()}, assign=True)
    return net


def _shifted(x_BCHW: Tensor, down: int, right: int) -> Tensor:
    """What leaves on one side is lost, what enters on the other repeats the edge."""
    height, width = x_BCHW.shape[2:]
    framed = F.pad(x_BCHW, (SHIFT,) * 4, mode="replicate")
    return framed[:, :, SHIFT - down : SHIFT - down + height, SHIFT - right : SHIFT - right + width]


def _arrays(path: Path, wanted: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, NDArray[Any]]:
    expected = f"expected the npz of the MNIST CNN ({_MNIST_TOLD}); check score.weights"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if max(member.file_size for member in arrays.zip.infolist()) > _MOST_BYTES:
                raise DataError(f"{path}: found an array of more than 1 MiB, {expected}")
            found = {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise DataError(f"{path}: found no such file, {expected}") from None
    except _NOT_AN_NPZ:
        raise DataError(f"{path}: found a file that is not a whole npz of plain numbers, {expected}") from None
    if {name: (array.shape, array.dtype.kind) for name, array in found.items()} != wanted:
        shown = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise DataError(f"{path}: found the arrays {shown[:200] or '(none)'}, {expected}")
    return found
