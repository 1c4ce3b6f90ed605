"""Classifier with 64 features that is trained on your images at the first score.

Without classes in the data, it learns to recognise the rotation of images.
"""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError
from paragan.core.files import create_subfolder, is_sha256, read_bytes, read_json_file, remove_tree, write_bytes
from paragan.core.interrupt import StopRequested
from paragan.core.printable import ProgressLines
from paragan.core.source import Source, image_specs
from paragan.features.base import classifier
from paragan.features.base.classifier import build_classifier, train_classifier
from paragan.features.base.extractor import CLASSES, ExtractorContext, FeatureExtractor
from paragan.storage.download import cache_dir

JUDGE = "judge"
ROTATION = "rotation"  # the task of a judge of data without classes
_FORMAT = 1
_MAX_INFO_BYTES = 1 << 20  # of judge.json
_MAX_BYTES = 1 << 30  # of weights
_MAX_CACHED = 64  # classifiers of at most about 2 MB
_NUM_HASHED = 32  # images of each split whose pixels are part of a cached classifier's name


@dataclass(frozen=True)
class Options:
    """No settings."""


def prepare(options: Options, context: ExtractorContext) -> Callable[[], FeatureExtractor]:
    """Return a function that reads or trains the judge at its first call. Collective."""

    @cache
    def train_or_load_once() -> FeatureExtractor:
        lines = ProgressLines(label="score", unit="steps of the classifier", total=classifier.STEPS, log=context.log)
        began_s = 0.0

        def progress(steps: int) -> None:
            nonlocal began_s
            if context.stop():
                context.log(f"score     stopped after {steps} steps of the classifier; the next start trains it anew")
                raise StopRequested
            if steps == 2:  # the first steps are slower
                began_s = time.monotonic()
            elif steps == 6:
                left_s = (time.monotonic() - began_s) / 4 * (classifier.STEPS - 6)
                subject = (
                    f"a classifier on {len(context.train):,} of your images, for scores by its features "
                    "(fd: 0 if equal; real: held-out images)"
                )
                wait = f"about {left_s:.0f} s, once for these images (evaluation.mode=background: without a wait)"
                context.log(f"score     training {subject}: {wait}")
            lines(steps)

        judge = train_or_load(
            context.train,
            context.held_out,
            context.folder,
            must_save=context.must_save,
            world=context.world,
            progress=progress,
            cache=cache_dir() / "classifiers" if context.is_cached else None,
        )
        return replace(judge, name=context.name, **context.call_settings(options))

    return train_or_load_once


class RotatedSource(Source):
    """Images of `source` rotated by multiples of 90 degrees (180 if not square), as classes.

    Source: S. Gidaris, P. Singh, N. Komodakis, "Unsupervised representation learning by predicting
    image rotations", ICLR 2018.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tensors = image_specs(source.shape, has_labels=True, dtype=source.tensors["image"].dtype)
        self._quarters = 1 if source.shape[1] == source.shape[2] else 2
        self.class_names = tuple(f"turned by {90 * turn}" for turn in range(0, 4, self._quarters))
        self.fingerprint = f"turned {source.fingerprint}"

    def __len__(self) -> int:
        return len(self.source) * len(self.class_names)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return images and rotations: row i is image i % n, rotated i // n times."""
        turns, rows = np.divmod(np.asarray(indices), len(self.source))
        x_BCHW = self.source.fetch(rows)["image"].numpy()  # torch does not rotate uint16
        turned = [np.rot90(x, int(turn) * self._quarters, (1, 2)) for x, turn in zip(x_BCHW, turns, strict=True)]
        return {"image": torch.from_numpy(np.stack(turned)), "label": torch.from_numpy(turns)}


def train_or_load(
    train: Source,
    held_out: Source,
    folder: Path | None,
    seed: int = 0,
    *,
    must_save: bool = True,
    world: World = ALONE,
    progress: Callable[[int], None] = lambda steps: None,
    cache: Path | None = None,
) -> FeatureExtractor:
    """Return the judge of this data: read from `folder` or `cache`, or trained, and saved in both.

    A saved judge is used if data, settings and seed are equal. Data with fewer than two classes give a judge of
    rotations (`RotatedSource`). Every rank trains the same judge, so that no rank waits; the weights of rank 0 are used
    and saved. progress: see `train_classifier`; if it raises, nothing is written. cache: folder of the newest 64 judges
    of all runs. Raises `CheckpointError` if `folder` cannot be written and `must_save` is set.
    """
    task, train, held_out = _task_of(train, held_out)
    fingerprint = _fingerprint(train, held_out, seed)
    saved = None if folder is None else _load(train, folder, fingerprint, seed)
    if not world.any(saved is None):
        assert saved is not None
        return replace(saved, task=task)
    entry = None if cache is None else cache / _content_hash(train, held_out, fingerprint)
    judge = None if entry is None else _load(train, entry, fingerprint, seed)
    if world.any(judge is None) or judge is None:
        judge = _trained(train, held_out, seed, progress)
    world.broadcast_from_main(judge.network.state_dict().values())
    weights = save(judge.network.state_dict())
    judge = replace(judge, task=task, sha256=hashlib.sha256(weights).hexdigest())
    if folder is not None and world.is_main:
        with nullcontext() if must_save else suppress(CheckpointError):
            _save(judge, folder, weights, fingerprint)
    if entry is not None and world.is_main:
        _cache(judge, entry, weights, fingerprint)
    return judge


def _task_of(train: Source, held_out: Source) -> tuple[str, Source, Source]:
    """Return the task of a judge with its images: their classes, or their rotations without two classes."""
    if len(train.class_names) < 2:
        return ROTATION, RotatedSource(train), RotatedSource(held_out)
    return CLASSES, train, held_out


def _trained(train: Source, held_out: Source, seed: int, progress: Callable[[int], None]) -> FeatureExtractor:
    net = train_classifier(train, seed, progress)
    judge = FeatureExtractor(name=JUDGE, network=net, shape=train.shape, num_classes=len(train.class_names), sha256="")
    return judge.with_accuracy(held_out)


def _cache(judge: FeatureExtractor, entry: Path, weights: bytes, fingerprint: str) -> None:
    """Save a judge for other runs if there is space, and remove those that were not used for the longest time."""
    with suppress(OSError, CheckpointError):
        _save(judge, entry, weights, fingerprint)  # also one that was read, which is then the newest
        judges = (path for path in entry.parent.iterdir() if is_sha256(path.name))  # nothing else is removed
        by_age = sorted(judges, key=lambda path: path.lstat().st_mtime, reverse=True)
        for path in by_age[_MAX_CACHED:]:
            remove_tree(path)


def _load(train: Source, folder: Path, fingerprint: str, seed: int) -> FeatureExtractor | None:
    """Read the judge of a folder; None if it is missing, damaged, not finite, or of other data."""
    try:
        note = read_json_file(folder / "judge.json", dict, _MAX_INFO_BYTES)
        weights = read_bytes(folder / "judge.safetensors", _MAX_BYTES)
        sha256 = hashlib.sha256(weights).hexdigest()
        if (note["format"], note["fingerprint"], note["sha256"]) != (_FORMAT, fingerprint, sha256):
            return None
        num_classes = len(train.class_names)
        net = build_classifier(train.shape, num_classes, seed)
        net.load_state_dict(load(weights))
        accuracy = None if note["accuracy"] is None else float(note["accuracy"])
        numbers = [torch.tensor(accuracy or 0.0), *net.state_dict().values()]
        if not all(bool(number.isfinite().all()) for number in numbers):
            return None
        return FeatureExtractor(
            name=JUDGE, network=net, shape=train.shape, num_classes=num_classes, sha256=sha256, accuracy=accuracy
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError, SafetensorError):
        return None


def _save(judge: FeatureExtractor, folder: Path, weights: bytes, fingerprint: str) -> None:
    """Write both files atomically; judge.json last, because it makes the weights valid."""
    note = {"format": _FORMAT, "accuracy": judge.accuracy, "sha256": judge.sha256, "fingerprint": fingerprint}
    try:
        create_subfolder(folder.parent, folder.name)
        for name, content in (("judge.safetensors", weights), ("judge.json", json.dumps(note, indent=1).encode())):
            write_bytes(folder / name, content)
    except OSError as error:
        raise CheckpointError(
            f"judge: its weights were not written to {folder}: {error.strerror}; free disk space or use another folder"
        ) from None


def _fingerprint(train: Source, held_out: Source, seed: int) -> str:
    """Hash everything that the trained weights and their accuracy depend on."""
    settings = (classifier.NUM_FEATURES, classifier.STEPS, classifier.BATCH, classifier.LEARNING_RATE, classifier.SHIFT)
    digest = hashlib.sha256(repr((_FORMAT, seed, settings, train.shape, train.class_names, len(train))).encode())
    for source in (train, held_out):
        digest.update(source.fingerprint.encode())
    return digest.hexdigest()


def _content_hash(train: Source, held_out: Source, fingerprint: str) -> str:
    """Hash a fingerprint, some images, and what decides how sums are rounded: the build of torch and its kernels.

    A fingerprint has names, sizes and times, which two folders may share.
    """
    digest = hashlib.sha256(f"{fingerprint} {torch.__config__.show()}".encode())
    for source in (train, held_out):
        rows = np.linspace(0, len(source) - 1, min(_NUM_HASHED, len(source))).astype(np.int64)
        for tensor in source.fetch(rows).values():
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
