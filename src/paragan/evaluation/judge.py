"""The judge: a classifier whose logits and features scores are computed from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError
from paragan.core.files import create_subfolder, read_bytes, write_bytes
from paragan.core.protocols import Source, image_specs
from paragan.evaluation import classifier, packaged_extractors
from paragan.evaluation.classifier import build_classifier, train_classifier
from paragan.evaluation.extractors import EXTRACTORS, load_extractor
from paragan.loading.loader import normalise_images
from paragan.loading.order import Order
from paragan.metrics._sample_features import SampleFeatures

JUDGE = "judge"  # name of a judge that is trained for a run
CLASSES, TURNS = "classes", "which way up"  # tasks of a judge
MAX_FOR_ACCURACY = 10_000
_AT_ONCE = 500
_RELIABLE = 0.95  # a score by a judge of lower accuracy is printed with a warning
_REFERENCE = 0  # the seed of the order in which real images are judged
_FORMAT = 1
_MAX_INFO_BYTES, _MAX_BYTES = 1 << 20, 1 << 30  # of judge.json and of weights


@dataclass(frozen=True)
class Judge:
    """A trained classifier, on the CPU in full precision and evaluation mode.

    shape: (C, H, W) of its inputs. crop: pixels that are cut off at each edge. sha256: of its weights; equal where two
    scores are by one judge. accuracy: on held-out images; None: unknown.
    """

    name: str
    net: nn.Module  # x_BCHW -> (features_BF, logits_BK)
    shape: tuple[int, int, int]
    num_classes: int
    sha256: str
    accuracy: float | None = None
    crop: int = 0

    @torch.no_grad()
    def judge(self, x_BCHW: Tensor, labels_B: Tensor | None = None) -> SampleFeatures:
        """Compute features and logits of images in [-1, 1] on any device. labels_B: requested labels, passed on."""
        self.net.eval()
        cropped_BCHW = F.pad(x_BCHW.detach().float().cpu(), (-self.crop,) * 4)
        outputs = [self.net(chunk) for chunk in cropped_BCHW.split(_AT_ONCE)]
        features, logits = zip(*outputs, strict=True)
        return SampleFeatures(torch.cat(features), torch.cat(logits), None if labels_B is None else labels_B.cpu())

    def judge_rows(self, source: Source, count: int) -> SampleFeatures:
        """Judge `count` images of a data set, always the same ones, with their labels."""
        return SampleFeatures.concatenate(
            [self.judge(samples["image"], samples.get("label")) for samples in _batches(source, count)]
        )


class RotatedSource(Source):
    """Images of `source` rotated by multiples of 90 degrees (180 if not square); labels are the rotations.

    Source: S. Gidaris, P. Singh, N. Komodakis, "Unsupervised representation learning by predicting image rotations",
    ICLR 2018.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tensors = image_specs(source.shape, has_labels=True)
        self._quarters = 1 if source.shape[1] == source.shape[2] else 2
        self.class_names = tuple(f"turned by {90 * turn}" for turn in range(0, 4, self._quarters))
        self.fingerprint = f"turned {source.fingerprint}"

    def __len__(self) -> int:
        return len(self.source) * len(self.class_names)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Row i is image i % n, rotated i // n times, so that evenly spread rows have every rotation."""
        turns, rows = np.divmod(np.asarray(indices), len(self.source))
        x_BCHW = self.source.fetch(rows)["image"]
        turned = [x.rot90(int(turn) * self._quarters, (1, 2)) for x, turn in zip(x_BCHW, turns, strict=True)]
        return {"image": torch.stack(turned), "label": torch.from_numpy(turns)}


def train_or_load(
    train: Source,
    held_out: Source,
    folder: Path | None,
    seed: int = 0,
    must_keep: bool = True,
    world: World = ALONE,
    progress: Callable[[int], None] = lambda steps: None,
) -> Judge:
    """The judge of this data: read from `folder` if data, settings and seed are equal, else trained and saved there.

    Data with fewer than two classes give a judge of rotations (`RotatedSource`), whose features serve the same purpose.
    Every rank trains the same judge, so that no rank waits; the weights of rank 0 are used and saved.
    progress: see `train_classifier`; where it raises, nothing is written.
    Raises `CheckpointError` if the folder cannot be written and `must_keep` is set.
    """
    if len(train.class_names) < 2:
        train, held_out = RotatedSource(train), RotatedSource(held_out)
    fingerprint = _fingerprint(train, held_out, seed)
    found = None if folder is None else _load(train, folder, fingerprint, seed)
    if not world.any(found is None):
        assert found is not None
        return found
    net = train_classifier(train, seed, progress)
    world.broadcast_from_main(net.state_dict().values())
    weights = save(net.state_dict())
    judge = Judge(JUDGE, net, train.shape, len(train.class_names), hashlib.sha256(weights).hexdigest())
    judge = with_accuracy(judge, held_out)
    if folder is not None and world.is_main:
        with nullcontext() if must_keep else suppress(CheckpointError):
            _save(judge, folder, weights, fingerprint)
    return judge


def load_pretrained(name: str, path: Path, size: int | None = None) -> Judge:
    """Load the classifier `name` of `EXTRACTORS` with the weights of an npz. Raises `DataError` for another file.

    size: of the images; MNIST of size 32 has a frame of two pixels, which is cropped. None: as trained.
    """
    net, (channels, side, _) = load_extractor(name, path), EXTRACTORS[name].shape
    crop = 2 if (name, size) == ("mnist-cnn", 32) else 0
    shape = (channels, side + 2 * crop, side + 2 * crop)
    return Judge(name, net, shape, 10, hashlib.sha256(read_bytes(path, _MAX_BYTES)).hexdigest(), crop=crop)


def load_packaged(name: str, size: int) -> Judge:
    """Load the packaged extractor `name` for images of `size` pixels. Raises `DataError` if its file is damaged."""
    extractor = packaged_extractors.PACKAGED[name]
    net, sha256 = packaged_extractors.load_network(name)
    crop, (channels, side, _) = extractor.crops.get(size, 0), extractor.shape
    return Judge(name, net, (channels, side + 2 * crop, side + 2 * crop), 10, sha256, crop=crop)


def with_accuracy(judge: Judge, held_out: Source) -> Judge:
    """A copy with the accuracy on at most 10,000 of these images; unchanged if they have no labels."""
    if not held_out.class_names:
        return judge
    return replace(judge, accuracy=accuracy(judge.judge_rows(held_out, min(len(held_out), MAX_FOR_ACCURACY))))


def accuracy(judged: SampleFeatures) -> float:
    """Share of labelled images that are classified correctly."""
    assert judged.logits_BK is not None and judged.requested_labels_B is not None
    return float((judged.logits_BK.argmax(1) == judged.requested_labels_B).double().mean())


def accuracy_warning(name: str, task: str, accuracy: float | None, num_classes: int) -> str | None:
    """A warning for scores by an extractor of low accuracy; None: the accuracy is high enough or unknown."""
    if accuracy is None or accuracy >= _RELIABLE:
        return None
    extractor = "the judge" if name == JUDGE else f"the extractor {name}"
    if task == CLASSES:
        means = "its scores are rough; compare them with those of real images, in brackets"
        return f"warning: score: {extractor} is right on {accuracy:.1%} of held-out images; {means}"
    means = "compare its scores with those of real images, in brackets"
    if accuracy < 1.5 / num_classes:
        means = f"{1 / num_classes:.0%} by chance, so its scores mean little; look at the samples, or add classes"
    return f"warning: score: {extractor} finds the rotation of {accuracy:.1%} of held-out images; {means}"


def _load(train: Source, folder: Path, fingerprint: str, seed: int) -> Judge | None:
    """The judge of the folder; None if there is none, it is damaged, or it was trained on other data."""
    try:
        note = json.loads(read_bytes(folder / "judge.json", _MAX_INFO_BYTES))
        weights = read_bytes(folder / "judge.safetensors", _MAX_BYTES)
        sha256 = hashlib.sha256(weights).hexdigest()
        if (note["format"], note["fingerprint"], note["sha256"]) != (_FORMAT, fingerprint, sha256):
            return None
        net = build_classifier(train.shape, len(train.class_names), seed)
        net.load_state_dict(load(weights))
        accuracy = note["accuracy"]
        return Judge(
            JUDGE, net, train.shape, len(train.class_names), sha256, None if accuracy is None else float(accuracy)
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError, SafetensorError):
        return None


def _save(judge: Judge, folder: Path, weights: bytes, fingerprint: str) -> None:
    """Write both files atomically; judge.json last, because it makes the weights valid."""
    note: dict[str, Any] = {
        "format": _FORMAT,
        "accuracy": judge.accuracy,
        "sha256": judge.sha256,
        "fingerprint": fingerprint,
    }
    try:
        create_subfolder(folder.parent, folder.name)
        for name, content in (("judge.safetensors", weights), ("judge.json", json.dumps(note, indent=1).encode())):
            write_bytes(folder / name, content)
    except OSError as error:
        raise CheckpointError(
            f"judge: its weights were not written to {folder}: {error.strerror}; free disk space or use another folder"
        ) from None


def _fingerprint(train: Source, held_out: Source, seed: int) -> str:
    """Hash of everything that the trained weights and their accuracy depend on."""
    settings = (classifier.NUM_FEATURES, classifier.STEPS, classifier.BATCH, classifier.LEARNING_RATE, classifier.SHIFT)
    digest = hashlib.sha256(repr((_FORMAT, seed, settings, train.shape, train.class_names, len(train))).encode())
    for source in (train, held_out):
        digest.update(source.fingerprint.encode())
    return digest.hexdigest()


def _batches(source: Source, count: int) -> Iterator[dict[str, Tensor]]:
    """Random batches of `count` images, always the same ones; random because files may be sorted by class.

    (MNIST is not shuffled: its training images with even and with uneven row numbers are fd 6.7 apart, random halves
    0.4.)
    """
    rows = Order(len(source), _REFERENCE).at(np.arange(count))
    for first in range(0, count, _AT_ONCE):
        yield normalise_images(source.fetch(rows[first : first + _AT_ONCE]), source)
