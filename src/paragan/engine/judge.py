"""The classifier that scores: what samples are recognised as, and the features that distances are measured in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.seams import Source
from paragan.engine import classifier
from paragan.engine.classifier import fitted, mnist_cnn_from, untrained
from paragan.loading.loader import normalised
from paragan.metrics._judged import Judged

_AT_ONCE = 500
_FORMAT = 1


@dataclass(frozen=True)
class Judge:
    """A trained classifier, on the CPU in full precision and evaluation mode.

    sha256: of its weights; equal where two scores come from one judge. accuracy: on held-out images; None: unknown.
    """

    name: str
    net: nn.Module  # x_BCHW -> (features_BF, logits_BK)
    shape: tuple[int, int, int]
    num_classes: int
    sha256: str
    accuracy: float | None = None

    @torch.no_grad()
    def judge(self, x_BCHW: Tensor, asked_B: Tensor | None = None) -> Judged:
        """What it makes of images in [-1, 1] from any device; `asked_B`, the classes they should show, is passed on."""
        self.net.eval()
        pieces = [self.net(part) for part in x_BCHW.detach().float().cpu().split(_AT_ONCE)]
        features, logits = zip(*pieces, strict=True)
        return Judged(torch.cat(features), torch.cat(logits), None if asked_B is None else asked_B.cpu())

    def judge_rows(self, source: Source, count: int) -> Judged:
        """The first `count` images of a data set, with their labels as the classes asked for."""
        return Judged.joined([self.judge(normalised(x_BCHW), y_B) for x_BCHW, y_B in _pieces(source, count)])


def train_or_load(train: Source, held_out: Source, folder: Path | None, seed: int = 0) -> Judge:
    """The judge of this data: the one kept in `folder` if data, settings and seed are the same, else trained and kept.

    Raises `ConfigError` for data without labels, `CheckpointError` if the folder cannot be written.
    """
    if not train.class_names:
        raise ConfigError(
            "score.extractor: found 'judge' for data without labels, expected an extractor that needs no training; "
            "give score.extractor=mnist-cnn"
        )
    fingerprint = _fingerprint(train, held_out, seed)
    found = None if folder is None else _kept(train, folder, fingerprint, seed)
    if found is not None:
        return found
    net = fitted(train, seed)
    weights = save(net.state_dict())
    judge = Judge("judge", net, train.shape, len(train.class_names), hashlib.sha256(weights).hexdigest())
    judge = measured(judge, held_out)
    if folder is not None:
        _keep(judge, folder, weights, fingerprint)
    return judge


def mnist_cnn(path: Path) -> Judge:
    """The ready-made MNIST classifier in an npz. Raises `DataError` if the file is not that."""
    net = mnist_cnn_from(path)
    return Judge("mnist-cnn", net, (1, 28, 28), 10, hashlib.sha256(path.read_bytes()).hexdigest())


def measured(judge: Judge, held_out: Source) -> Judge:
    """The same judge with its accuracy on these images; as it was if they have no labels."""
    if not held_out.class_names:
        return judge
    judged = judge.judge_rows(held_out, len(held_out))
    assert judged.logits_BK is not None and judged.asked_B is not None
    accuracy = float((judged.logits_BK.argmax(1) == judged.asked_B).double().mean())
    return replace(judge, accuracy=accuracy)


def _kept(train: Source, folder: Path, fingerprint: str, seed: int) -> Judge | None:
    """The judge in the folder; None if there is none, it is damaged, or it belongs to other data."""
    try:
        note = json.loads((folder / "judge.json").read_bytes())
        weights = (folder / "judge.safetensors").read_bytes()
        sha256 = hashlib.sha256(weights).hexdigest()
        if (note["format"], note["fingerprint"], note["sha256"]) != (_FORMAT, fingerprint, sha256):
            return None
        net = untrained(train.shape, len(train.class_names), seed)
        net.load_state_dict(load(weights))
        accuracy = note["accuracy"]
        return Judge(
            "judge", net, train.shape, len(train.class_names), sha256, None if accuracy is None else float(accuracy)
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        return None


def _keep(judge: Judge, folder: Path, weights: bytes, fingerprint: str) -> None:
    """Each file whole or not at all, the note last: without it the weights do not count."""
    note: dict[str, Any] = {
        "format": _FORMAT,
        "accuracy": judge.accuracy,
        "sha256": judge.sha256,
        "fingerprint": fingerprint,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("judge.safetensors", weights), ("judge.json", json.dumps(note, indent=1).encode())):
            temporary = folder / f".{name}.tmp"
            temporary.write_bytes(content)
            os.replace(temporary, folder / name)
    except OSError as error:
        raise CheckpointError(
            f"judge: its weights were not written to {folder}: {error.strerror}; make room or choose another folder"
        ) from None


def _fingerprint(train: Source, held_out: Source, seed: int) -> str:
    """Of everything that the trained weights and their accuracy depend on."""
    settings = (classifier.NUM_FEATURES, classifier.STEPS, classifier.BATCH, classifier.LEARNING_RATE, classifier.SHIFT)
    digest = hashlib.sha256(repr((_FORMAT, seed, settings, train.shape, train.class_names, len(train))).encode())
    for source in (train, held_out):
        for tensors in _pieces(source, len(source)):
            for tensor in tensors:
                digest.update(b"" if tensor is None else tensor.numpy().tobytes())
    return digest.hexdigest()


def _pieces(source: Source, count: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The first `count` images in order, a few at a time."""
    for first in range(0, count, _AT_ONCE):
        yield source.fetch(np.arange(first, min(first + _AT_ONCE, count)))
