"""What tests of shards share: folders of images, and shards made of them."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from paragan.datasets.preparation.prepare import prepare_shards
from paragan.storage.shard_folder import Encoding, ShardFolder


def image_folder(root: Path, count: int = 23, side: int = 12, tops: tuple[str, ...] = ("",)) -> Path:
    """Images of two classes below each of `tops`, PNG and JPEG, not square."""
    noise = np.random.default_rng(0)
    for top in tops:
        for number in range(count):
            path = root / top / ("cats", "dogs")[number % 2] / f"{number:02d}{('.png', '.jpg')[number // 2 % 2]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise.integers(0, 256, (side, side + 5, 3), np.uint8)).save(path)
    return root


def prepared(source: Path, out: Path, encoding: Encoding | None = None, samples_per_shard: int = 5) -> ShardFolder:
    """Shards of a source."""
    return prepare_shards(str(source), out, encoding, samples_per_shard, threads=2).folder


def contents(folder: Path) -> dict[str, str]:
    """The sha256 of every file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def flip_bit(path: Path, offset: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
