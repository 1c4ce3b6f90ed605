"""Classifier that is trained as the judge of a run; it returns (features, logits)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.source import Source
from paragan.game.optimizer_calls import step_if
from paragan.game.options import ScheduleOptions
from paragan.game.policy import Policy, set_lr
from paragan.loading.loader import Loader

NUM_FEATURES = 64
STEPS = 500
BATCH = 64
LEARNING_RATE = 2e-3
SHIFT = 1
MAX_SIDE = 64  # larger images would take a core minutes (128 px) to an hour (256 px)
_POLICY = Policy(kind=torch.optim.Adam, lr=LEARNING_RATE, schedule=ScheduleOptions(name="linear", end=STEPS))


class Classifier(nn.Module):
    """CNN that halves the image until its shorter side is 4 to 7: 64 ReLU features, then logits.

    Images of twice `MAX_SIDE` and more are averaged over squares of pixels first, to 64 to 127 px.
    Without norm before their ReLU, a third of the features would learn to be 0 everywhere.
    """

    def __init__(self, shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        stages: list[nn.Module] = []
        if (reduction := min(height, width) // MAX_SIDE) > 1:
            stages.append(nn.AvgPool2d(reduction))
            height = height // reduction
            width = width // reduction
        while min(height, width) >= 8:
            wider = min(2 * channels, 64) if channels >= 32 else 32
            stages += [nn.Conv2d(channels, wider, 4, 2, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
            height = height // 2
            width = width // 2
        flat = nn.Linear(channels * height * width, NUM_FEATURES, bias=False)
        self.features = nn.Sequential(*stages, nn.Flatten(), flat, nn.BatchNorm1d(NUM_FEATURES), nn.ReLU())
        self.logits = nn.Linear(NUM_FEATURES, num_classes)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        features_BF = self.features(x_BCHW)
        return features_BF, self.logits(features_BF)


def build_classifier(shape: tuple[int, int, int], num_classes: int, seed: int) -> Classifier:
    """Build an untrained classifier from a seed, without side effect on the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(rng.key(seed, "judge", "init"))
        return Classifier(shape, num_classes).float()


def train_classifier(train: Source, seed: int, progress: Callable[[int], None]) -> Classifier:
    """Train a classifier for a fixed number of steps on the CPU.

    Images are shifted by up to one pixel. progress: called before each step with the number of steps done; it may raise
    to end the training. Weights are equal for equal data, seed and machine: one thread is used, since sums over several
    depend on their number (and kernels this small gain nothing from more). The global random state does not change.
    """
    with _one_thread(), torch.enable_grad():
        return _train(train, seed, progress)


def _train(train: Source, seed: int, progress: Callable[[int], None]) -> Classifier:
    net = build_classifier(train.shape, len(train.class_names), seed)
    optimizer = _POLICY.optimizer(net.named_parameters())
    batches = Loader(train, BATCH, rng.key(seed, "judge", "order"), torch.device("cpu"))
    shifts = torch.randint(-SHIFT, SHIFT + 1, (STEPS, 2), generator=rng.generator(seed, "judge", "shift"))
    for count, shift in enumerate(shifts.tolist()):
        progress(count)
        batch = next(batches)
        _, logits_BK = net(_shift(batch.image, *shift))
        optimizer.zero_grad()
        F.cross_entropy(logits_BK, batch.tensors["label"]).backward()
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


def _shift(x_BCHW: Tensor, down: int, right: int) -> Tensor:
    """Shift images; entering pixels repeat the edge."""
    height, width = x_BCHW.shape[2:]
    framed = F.pad(x_BCHW, (SHIFT,) * 4, mode="replicate")
    return framed[:, :, SHIFT - down : SHIFT - down + height, SHIFT - right : SHIFT - right + width]
