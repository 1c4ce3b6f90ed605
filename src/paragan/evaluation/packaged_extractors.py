"""Extractors that are part of the package, one per data set; `benchmarks/train_extractors.py` trains them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import nn

from paragan.core.errors import DataError
from paragan.evaluation.residual_cnn import ResidualCnn

FOLDER = Path(__file__).with_name("weights")
TABLE = FOLDER / "extractors.json"


@dataclass(frozen=True)
class PackagedExtractor:
    """One extractor. shape: (C, H, W) of its inputs. crops: pixels cut off at each edge, by image size."""

    make: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    crops: Mapping[int, int] = field(default_factory=dict)


# By the name of the data set whose training images they were trained on.
PACKAGED = {
    "mnist": PackagedExtractor(lambda: ResidualCnn(1, (16, 32, 64, 64)), (1, 28, 28), {28: 0, 32: 2}),
    "cifar10": PackagedExtractor(lambda: ResidualCnn(3, (32, 48, 96, 112)), (3, 32, 32), {32: 0}),
}


def find_packaged(dataset: str, shape: tuple[int, int, int]) -> str | None:
    """Name of the extractor that was trained on this data set and reads images of this shape; None: there is none."""
    extractor = PACKAGED.get(dataset)
    channels, height, width = shape
    fits = extractor is not None and height == width and height in extractor.crops and channels == extractor.shape[0]
    return dataset if fits else None


def extractor_info(name: str) -> dict[str, Any]:
    """Read sha256, trained_on, trained_by, and accuracy by test images."""
    facts: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))[name]
    return facts


def load_network(name: str) -> tuple[nn.Module, str]:
    """Load the network and the sha256 of its weights. Raises `DataError` if it is not the one in the table."""
    path = FOLDER / f"{name}.safetensors"
    content = path.read_bytes() if path.is_file() else b""
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != extractor_info(name)["sha256"]:
        what = "is damaged" if content else "is missing"
        raise DataError(
            f"{path}: this file of the package {what}; install paragan again, or use evaluation.features=judge"
        )
    return network_from_bytes(name, content), sha256


def network_from_bytes(name: str, content: bytes) -> nn.Module:
    """Build the network with the weights of a safetensors file, which are stored in half precision."""
    with torch.device("meta"):  # no initial weights: none are drawn from the global random state
        net = PACKAGED[name].make()
    weights = {key: t.float() if t.is_floating_point() else t for key, t in load(content).items()}
    net.load_state_dict(weights, assign=True)
    return net.eval()
